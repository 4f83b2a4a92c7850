"""lp.barrier(): where the workers of a group wait for each other. The supervisor counts who has come."""

from __future__ import annotations

import itertools

from launchpad.courier.deadlines import check_timeout
from launchpad.courier.telemetry import tracing
from launchpad.errors import BarrierBroken, Stopped
from launchpad.runtime import context
from launchpad.runtime.events import BarrierLeft, BarrierReached
from launchpad.runtime.watermarks import ABSENT, BARRIER, BROKEN, LEFT

_REPLY_S = 5.0
"""How long the supervisor may take to say who was absent."""

_numbers = itertools.count(
    1
)  # of all waiting in this process: they only grow, as watermarks have to


def barrier(name: str = "", timeout_s: float | None = None) -> None:
    """Waits until all workers of this worker's group have come here.

    Each passes it as often as all have come. One that is started again comes anew: restart such a group as a
    whole, `RestartPolicy(scope="group")`, or give each barrier a name of its own.

    It goes by way of the supervisor, on Kubernetes through the cluster's API: it is not meant for the inner
    loop of a computation.

    Example:
        for epoch in range(10):
          train(epoch)
          lp.barrier(f"epoch {epoch}", timeout_s=600)

    Args:
        name: Which barrier, if there are several.
        timeout_s: How long to wait at most.

    Raises:
        TimeoutError: the time was up before all had come; it says who was absent.
        BarrierBroken: one of the group has ended for good, so that it can never be passed.
        Stopped: the program stops.
        NotRunningError: outside of workers, in a forked child of one, and in `lp.testing.worker` as one of
            several.
    """
    check_timeout(timeout_s)
    me = context.current()
    me.link.refuse_in_child("lp.barrier()", "Call it there, and let the child wait for the worker.")
    marks = me.link.watermarks
    number = next(_numbers)
    absent, broken = f"{ABSENT}{name}/", f"{BROKEN}{name}/"
    passed, left = f"{BARRIER}{name}", f"{LEFT}{name}"

    def is_over() -> bool:
        is_decided = marks.get(passed) >= number or bool(marks.names(broken, number))
        return is_decided or me.stop.event.is_set()

    me.link.report(BarrierReached(me.name, me.attempt, name, number))
    try:
        with tracing.Wait(f"barrier {name!r}"):
            in_time = marks.wait_for(is_over, timeout_s)
        if not in_time:
            me.link.report(BarrierLeft(me.name, me.attempt, name, number))
            marks.wait_for(lambda: is_over() or marks.get(left) >= number, _REPLY_S)
        if marks.get(passed) >= number:
            return
        if ended := marks.names(broken, number):
            raise BarrierBroken(
                f"{me.name} cannot pass barrier {name!r}: {', '.join(ended)} of its group has ended, and will"
                " not come"
            )
        if me.stop.event.is_set():
            raise Stopped
        missing = ", ".join(marks.names(absent, number)) or "someone"
        raise TimeoutError(
            f"{me.name} waited at barrier {name!r} for {timeout_s:g} s; absent: {missing}"
        )
    finally:
        marks.forget({passed, left}, {absent, broken})
