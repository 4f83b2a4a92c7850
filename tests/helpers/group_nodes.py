"""Nodes for the contract's sections on results, state, callers, groups and edges."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import numpy as np

import launchpad as lp
from tests.waiting import until


class Loss:
    """A value of a class that others import."""

    def __init__(self, value: float) -> None:
        self.value = value


# Results.


def measure(size: int) -> tuple[Loss, Any]:
    return Loss(lp.current().replica_index), np.arange(size)


async def measure_later() -> str:
    return "later"


def return_a_lock() -> Any:
    return threading.Lock()


def return_attempt() -> int:
    me = lp.current()
    if me.attempt < 3:
        raise ValueError("not yet")
    return me.attempt


class Runs:
    def run(self) -> dict[str, int]:
        return {"steps": 3}

    def ping(self) -> str:
        return "pong"


# State.


class Progress:
    """Counts steps; dies at those of the first attempt that it is told to."""

    def __init__(self, limit: int, dies_at: int = 0) -> None:
        self.limit = limit
        self.dies_at = dies_at

    def run(self) -> list[Any]:
        me = lp.current()
        begun_at = state = me.load(default={"step": 0})
        while state["step"] < self.limit:
            state = {"step": state["step"] + 1}
            me.save(state)
            if state["step"] == self.dies_at and me.attempt == 1:
                raise ValueError("told to die")
        return [begun_at["step"], me.attempt, me.is_resumed, me.saved_versions()]


class Tally:
    """Saves what it has, by its hooks."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def save(self) -> dict[str, int]:
        return {"count": self.count}

    def restore(self, saved: dict[str, int]) -> None:
        self.count = saved["count"]


def exchange_files() -> list[str]:
    """Each writes a file into the group's folder, and reads those of all."""
    me = lp.current()
    (me.group_dir / f"part-{me.replica_index}").write_text(me.name)
    lp.barrier("written", timeout_s=60)
    return sorted(path.read_text() for path in me.group_dir.glob("part-*"))


# Preload.


def look_at_modules(module: str) -> tuple[bool, int, float, str]:
    """Return whether the module was imported, the attempt, a number drawn by numpy, and BLAS's threads."""
    was_there = module in sys.modules
    me = lp.current()
    if me.attempt == 1:
        raise ValueError("once more")
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return was_there, me.attempt, float(np.random.rand()), threads


# Callers.


class Desk:
    """Remembers who has called; waits until one of them is gone."""

    def __init__(self) -> None:
        self.callers: list[lp.Caller] = []
        self.waits_for: list[str] = []
        self.ends_seen: list[str] = []

    def sign(self) -> tuple[str, str, int, int, str]:
        caller = lp.caller()
        self.callers.append(caller)
        return caller.worker, caller.label, caller.replica_index, caller.attempt, caller.incarnation

    async def sign_later(self) -> str:
        return lp.caller().worker

    def sign_stream(self) -> Any:
        for _ in range(2):
            yield lp.caller().worker

    def gone(self) -> list[bool]:
        return [caller.is_gone for caller in self.callers]

    def wait_for_the_end_of_this_caller(self) -> None:
        caller = lp.caller()
        self.waits_for.append(caller.worker)
        assert not caller.is_gone
        until(lambda: caller.is_gone)
        self.ends_seen.append(caller.worker)

    def waits(self) -> list[str]:
        return self.waits_for

    def ends(self) -> list[str]:
        return self.ends_seen


def sign_and_die_once(desk: Any) -> Any:
    signed = desk.sign()
    if lp.current().attempt == 1:
        desk.futures.wait_for_the_end_of_this_caller()
        until(lambda: lp.current().name in desk.waits())
        raise ValueError("told to die")
    return signed, desk.sign_later(), list(desk.sign_stream())


# Groups.


class Rank:
    """A rank that calls the others of its group, each at its own pace."""

    def __init__(self, *others: Any) -> None:
        self.others = others

    def run(self) -> list[str]:
        time.sleep(0.1 * lp.current().replica_index)
        return [peer.name() for peer in self.others]

    def name(self) -> str:
        return lp.current().name


def meet(rounds: int) -> int:
    for _ in range(rounds):
        lp.barrier("round", timeout_s=60)
    return rounds


def meet_one_who_has_left() -> str:
    """The last of the group returns; the others find out who it was."""
    me = lp.current()
    if me.replica_index == me.num_replicas - 1:
        return "left"
    try:
        lp.barrier("never", timeout_s=60)
    except lp.BarrierBroken as error:
        return str(error)
    return "passed"


def come_late_once() -> str:
    """One is late: the other gives up, and is told who was absent."""
    me = lp.current()
    if me.replica_index == 0:
        try:
            lp.barrier("early", timeout_s=0.2)
        except TimeoutError as error:
            lp.barrier("late", timeout_s=60)
            return str(error)
        return "passed"
    lp.barrier("late", timeout_s=60)
    return ""


def listen_after_a_while(address: lp.Address) -> None:
    time.sleep(0.5)
    with socket.create_server(("", lp.get_port_from_address(address.resolve()))):
        lp.wait_for_stop()


def connect(address: lp.Address) -> bool:
    host, _, port = address.wait(timeout_s=60).rpartition(":")
    socket.create_connection((host, int(port))).close()
    return True


def fall_silent_once(how: str) -> int:
    if lp.current().attempt == 1:
        for _ in range(5):
            lp.heartbeat()
            time.sleep(0.05)
        while how == "asleep":
            time.sleep(0.05)
        sum(range(10**13))  # in C, with the interpreter
    return lp.current().attempt


# Edges.


class Adder:
    def __init__(self) -> None:
        self.order: list[str] = []
        self.value = 0.0

    def add(self, part: float) -> float:
        self.order.append(lp.caller().worker)
        self.value = self.value * 0.5 + part
        return self.value

    def names(self) -> list[str]:
        return self.order


def add_and_be_killed_once(adder: Any, times: int) -> None:
    add_often(adder, times)
    if lp.current().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def add_often(adder: Any, times: int) -> float:
    value = 0.0
    for number in range(times):
        value = adder.add(value * 0.1 + number + lp.current().replica_index)
    return value
