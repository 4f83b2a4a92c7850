"""lp.barrier(): the workers of a group wait for each other. The supervisor counts the waiting workers."""

from __future__ import annotations

import itertools

from launchpad.courier.deadlines import check_timeout
from launchpad.courier.telemetry import tracing
from launchpad.errors import BarrierBroken, Stopped
from launchpad.runtime import context
from launchpad.runtime.events import BarrierLeft, BarrierReached
from launchpad.runtime.watermarks import ABSENT, BARRIER, BROKEN, LEFT

_REPLY_S = 5.0
"""Seconds the supervisor may take to say which workers were absent."""

# Each wait in this process has a number. The numbers only grow, as watermarks must.
_numbers = itertools.count(1)


def barrier(name: str = "", timeout_s: float | None = None) -> None:
    """Wait until all workers of this worker's group have reached this barrier.

    A worker passes the barrier once for each time that all workers reached it. A restarted worker starts
    again from its first barrier. So restart the group as a whole, with `RestartPolicy(scope="group")`, or
    give each barrier its own name.

    The wait goes through the supervisor, and on Kubernetes through the cluster's API, so don't use it in the
    inner loop of a computation.

    Example:
        for epoch in range(10):
          train(epoch)
          lp.barrier(f"epoch {epoch}", timeout_s=600)

    Args:
        name: The name of the barrier, if there are several.
        timeout_s: The most seconds to wait; None for no limit.

    Raises:
        TimeoutError: the time was up before all workers came; the text says which were absent.
        BarrierBroken: a worker of the group has ended for good, so the barrier can never be passed.
        Stopped: the program stops.
        NotRunningError: called outside a worker, in a forked child of a worker, or in an `lp.testing.worker`
            that is one of several.
    """
    check_timeout(timeout_s)
    me = context.current()
    me.link.refuse_in_child("lp.barrier()", "Call it there, and let the child wait for the worker.")
    marks = me.link.watermarks
    number = next(_numbers)
    absent_prefix = f"{ABSENT}{name}/"
    broken_prefix = f"{BROKEN}{name}/"
    passed_mark = f"{BARRIER}{name}"
    left_mark = f"{LEFT}{name}"

    def is_over() -> bool:
        is_decided = marks.get(passed_mark) >= number or bool(marks.names(broken_prefix, number))
        return is_decided or me.stop.event.is_set()

    me.link.report(BarrierReached(me.name, me.attempt, name, number))
    try:
        with tracing.Wait(f"barrier {name!r}"):
            in_time = marks.wait_for(is_over, timeout_s)
        if not in_time:
            me.link.report(BarrierLeft(me.name, me.attempt, name, number))
            marks.wait_for(lambda: is_over() or marks.get(left_mark) >= number, _REPLY_S)
        if marks.get(passed_mark) >= number:
            return
        ended_workers = marks.names(broken_prefix, number)
        if ended_workers:
            workers = ", ".join(ended_workers)
            raise BarrierBroken(
                f"{me.name} cannot pass barrier {name!r}: {workers} of its group has ended, and will not come"
            )
        if me.stop.event.is_set():
            raise Stopped
        missing = ", ".join(marks.names(absent_prefix, number)) or "someone"
        raise TimeoutError(
            f"{me.name} waited at barrier {name!r} for {timeout_s:g} s; absent: {missing}"
        )
    finally:
        marks.forget({passed_mark, left_mark}, {absent_prefix, broken_prefix})
