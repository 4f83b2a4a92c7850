"""Outpost: the Ray actor of one worker. It starts the worker's process on its node, and speaks for it.

    launcher ── open, start, ask, kill, place ──▶ outpost ══ lifeline ══ keeper ── host ── worker
             ◀── news: log lines and reports ───

The worker is a process of its own, as in `local_mp`: so the kernel says how it ended, what hangs in it can be
ended, and a restart takes no new actor. When Ray ends the actor, for whatever reason, the lifeline ends,
and the worker with all that it has started.

All methods run in one event loop, and none waits for the worker. Ray runs the calls of such an actor in any
order, so the launcher numbers what must keep its order: start, ask, kill, tell_gone, place.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from launchpad.address import SimpleLocalAddressBuilder, get_port_from_address
from launchpad.courier import keyring
from launchpad.errors import LaunchError
from launchpad.launch.backend import Bound, Ended
from launchpad.launch.backends.origin import Keys
from launchpad.launch.backends.processes.backend import ProcessWorkers, start_host
from launchpad.launch.backends.processes.briefing import Abroad
from launchpad.launch.backends.ray import cluster
from launchpad.launch.backends.ray.orders import News, Opened, Orders
from launchpad.launch.gpus.visible import VISIBLE
from launchpad.launch.logs.tail import Tail
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.run_directory import RunDirectory, socket_name

_LOOK_S = 0.05
"""How often the log is looked at."""

_MOST = 4 << 20
"""How much of the log goes at once, in bytes."""


class Outpost:
    """Starts one worker, again and again if need be, and passes on what is said."""

    def __init__(self) -> None:
        self._worker = ""
        self._attempt = 0
        self._workers: ProcessWorkers | None = None
        self._run: RunDirectory | None = None
        self._tail: Tail | None = None
        self._reports: list[Any] = []
        self._ports: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_news = asyncio.Event()
        self._early: dict[int, tuple[str, tuple[Any, ...]]] = {}
        self._obeyed = 0

    async def open(self, orders: Orders, keys: Keys) -> Opened:
        """Prepares the node.

        Raises:
          LaunchError: it cannot be; the text says why.
        """
        self._loop = asyncio.get_running_loop()
        sys.path += [p for p in orders.origin.path if p not in sys.path and os.path.isdir(p)]
        node, ip = cluster.here()
        gpus = _checked_gpus(orders.worker)
        self._run = RunDirectory.create(orders.program, orders.worker.endpoints)
        self._worker = orders.worker.name
        worker = self._settled(orders.worker, ip, gpus)
        keyring.add(self._run.scope, keys.token)
        abroad = Abroad(
            listens_at=f"tcp:{_in_brackets(ip)}:0",
            token=keys.token,
            credentials=keys.credentials,
            argv=orders.origin.argv,
            flags=orders.origin.flags,
            state=orders.state,
        )
        plan = LaunchPlan(orders.program, orders.launch_type, (worker,))
        self._workers = start_host(plan, self._run, self._hear, abroad)
        self._run.make_runtime()
        return Opened(node, ip, gpus)

    async def obey(self, number: int, order: str, *arguments: Any) -> None:
        """Does what the launcher says; what has come before its turn waits for what it was said after."""
        self._early[number] = order, arguments
        while (due := self._early.pop(self._obeyed, None)) is not None:
            self._obeyed += 1
            name, given = due
            getattr(self, name)(*given)

    def start(self, attempt: int, places: Mapping[str, str]) -> None:
        """Starts the worker; `places` says where the others are."""
        assert self._workers is not None
        assert self._run is not None
        log = self._run.log(self._worker, attempt)
        self._attempt, self._tail = attempt, Tail(log)
        for address, endpoint in self._ports.items():
            self._tell(Bound(self._worker, attempt, address, (endpoint,)))
        self._workers.start(self._worker, attempt)
        self._workers.place(places)

    def ask(self, restarts: bool) -> None:
        """Asks it to stop."""
        if self._workers is not None:
            self._workers.ask(self._worker, restarts=restarts)

    def kill(self, at_once: bool) -> None:
        """Ends it."""
        if self._workers is not None:
            if at_once:
                self._workers.hurry()
            self._workers.kill(self._worker)

    def tell_gone(self, worker: str, why: str) -> None:
        """Another worker has ended for good, or is back."""
        if self._workers is not None:
            self._workers.tell_gone(worker, why)

    def place(self, places: Mapping[str, str]) -> None:
        """Others are somewhere else now."""
        if self._workers is not None:
            self._workers.place(places)

    async def stacks(self) -> str:
        """What the worker's threads are doing."""
        assert self._workers is not None
        return await asyncio.to_thread(self._workers.stacks, self._worker)

    async def news(self) -> News:
        """What there is to tell, as soon as there is something."""
        while True:
            self._has_news.clear()
            if (news := self._gathered()) is not None:
                return news
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_news.wait(), _LOOK_S)

    async def close(self) -> None:
        """Ends what still runs, and leaves nothing on the node."""
        if self._workers is not None:
            await asyncio.to_thread(self._workers.close)
        if self._run is not None:
            keyring.remove(self._run.scope)
            self._run.remove()
            shutil.rmtree(self._run.logs, ignore_errors=True)  # the launcher has it all

    def _settled(self, worker: WorkerPlan, ip: str, gpus: tuple[str, ...]) -> WorkerPlan:
        """The plan with endpoints on this node, and with the devices that Ray has given."""
        assert self._run is not None
        endpoints = {}
        for name, planned in worker.endpoints.items():
            if planned.startswith("tcp:"):
                endpoints[name] = f"unix:{self._run.runtime}/{socket_name(name)}"
            else:
                port = get_port_from_address(SimpleLocalAddressBuilder().build())
                self._ports[name] = endpoints[name] = f"{_in_brackets(ip)}:{port}"
        return replace(worker, endpoints=endpoints, gpus=gpus)

    def _hear(self, report: Any) -> None:
        """From the thread that reads what the host says."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._tell, report)

    def _tell(self, report: Any) -> None:
        self._reports.append(report)
        self._has_news.set()

    def _gathered(self) -> News | None:
        """What there is. An end is not told before all that was printed until then."""
        log = self._printed()
        if self._tail is not None and self._tail.has_more():
            return News(self._attempt, log, [])
        reports, self._reports = self._reports, []
        if self._tail is not None and any(isinstance(report, Ended) for report in reports):
            log += self._tail.remainder()
        return News(self._attempt, log, reports) if log or reports else None

    def _printed(self) -> bytes:
        printed: list[bytes] = []
        size = 0
        while self._tail is not None and size < _MOST and (lines := self._tail.lines()):
            printed += [line + b"\n" for line in lines]
            size = sum(map(len, printed))
        return b"".join(printed)


def _checked_gpus(worker: WorkerPlan) -> tuple[str, ...]:
    """The devices that Ray has given to this actor, which are as many as were asked for."""
    ray = cluster.load()
    ids = tuple(map(str, ray.get_runtime_context().get_accelerator_ids().get("GPU", ())))
    asked = math.ceil(worker.resources.gpus)
    seen = os.environ.get(VISIBLE)
    if len(set(ids)) != asked or (ids and seen is not None and seen != ",".join(ids)):
        raise LaunchError(
            f"{worker.name} asks for {asked} GPU, and Ray has given it {list(ids)} with"
            f" {VISIBLE}={seen!r} on {os.uname().nodename}. See what sets that variable there"
        )
    return ids


def _in_brackets(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip
