"""What a task gives to the workers that it is the host of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import launchpad as lp
from launchpad.errors import LaunchError
from launchpad.launch.backends.launch_origin import versions
from launchpad.launch.backends.remote.worker_host import HostReady, WorkerHost
from launchpad.launch.backends.spark.task_connection import TaskReady
from launchpad.launch.backends.spark.task_host import LauncherAddress, TaskHost


async def open_at(
    self: WorkerHost, where: HostReady, gpus: tuple[str, ...], *_: object
) -> tuple[str, ...]:
    """In place of that of `WorkerHost`."""
    return gpus


def test_workers_of_one_task_have_devices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    program = lp.Program("gpus")
    parts = [lp.PyNode(print) for _ in range(3)]
    with program.group("pair", resources=lp.Resources(gpus=0.5)):
        program.add_node(lp.MultiProcessingColocation(parts))
    plan = lp.plan(program, "spark")
    monkeypatch.setattr(WorkerHost, "open_at", open_at)
    launcher: Any = LauncherAddress("tcp:127.0.0.1:1", 0, None, versions())  # type: ignore[arg-type]
    ready = TaskReady(HostReady("here", "127.0.0.1"), "0")
    host = TaskHost(launcher, 0, ready, gpus=("4", "5"))

    async def give() -> list[object]:
        def call(worker: str, method: str, *more: object) -> Any:
            return host._call(worker, method, *more)

        rest = (None, "", None, None)
        given = [await call(f"pair-0.{i}", "open", plan, *rest) for i in range(2)]
        with pytest.raises(
            LaunchError, match=r"pair-0\.2 asks for 1 GPU.*\['4', '5'\], \[\] are free"
        ):
            await call("pair-0.2", "open", plan, *rest)
        await call("pair-0.0", "end")
        return [*given, await call("pair-0.2", "open", plan, *rest)]

    assert asyncio.run(give()) == [("4",), ("5",), ("4",)]
