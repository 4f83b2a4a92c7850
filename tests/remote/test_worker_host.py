"""A worker host, without the system that starts its process."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import launchpad as lp
from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import LauncherInfo, versions
from launchpad.launch.backends.remote.worker_host import HostReady, HostSpec, WorkerHost
from launchpad.launch.worker.spec import WorkerSpec
from launchpad.state import lock
from tests.helpers.programs import single


def test_a_host_that_is_closed_while_it_opens_starts_nothing_and_reports_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = lp.plan(single(lp.PyNode(print)), "local_mp")
    is_looking, is_closed = threading.Event(), threading.Event()

    def is_held_by(*_: object) -> bool:
        is_looking.set()
        return is_closed.wait(60)

    monkeypatch.setattr(lock, "is_held_by", is_held_by)

    async def close_while_it_opens() -> None:
        host = WorkerHost(versions(), "")
        unused: Any = None
        where = HostReady("here", "127.0.0.1")
        worker = WorkerSpec(plan.workers[0], plan.program, "local_mp", {}, unused)
        spec = HostSpec(worker, LauncherInfo.here(), "run", state="/somewhere")
        opening = asyncio.create_task(host.open_at(where, (), spec, unused))
        await asyncio.to_thread(is_looking.wait, 60)
        await host.close()
        is_closed.set()
        with pytest.raises(LaunchError, match="ended before it was ready"):
            await opening
        with pytest.raises(LaunchError, match="it was ended"):
            await host.next_update()

    asyncio.run(close_while_it_opens())
