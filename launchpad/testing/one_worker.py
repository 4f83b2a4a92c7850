"""A context manager that tests a class alone, as if it ran in a worker."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from launchpad.courier.server.event_loop import EventLoop
from launchpad.errors import NotRunningError
from launchpad.launch.plan import seed_of
from launchpad.runtime import context, user_code
from launchpad.runtime.context import RunContext
from launchpad.runtime.events import BarrierReached, Event
from launchpad.runtime.link import SupervisorLink
from launchpad.runtime.watermarks import BARRIER
from launchpad.state.own_state import OwnState
from launchpad.state.places import StatePlaces, is_url

_PROGRAM = "test"


@contextlib.contextmanager
def worker(
    label: str = "worker",
    *,
    state: str | os.PathLike[str] | None = None,
    rank: int = 0,
    of: int = 1,
    attempt: int = 1,
) -> Iterator[RunContext]:
    """Run a block in which `lp.current()` works as in a worker. Use this to test a class without a launch.

    Nothing is launched, and there are no other workers, so `lp.barrier` returns at once if the group has one
    replica, and raises NotRunningError if it has more. Saved state stays in `state`, so a second block with
    the same folder acts as the next attempt, or as the next launch. Functions given to `lp.on_exit` are
    called at the end of the block, unless the block raises.

    Example:
        def test_a_trainer_goes_on(tmp_path):
            with lp.testing.worker(state=tmp_path):
                Trainer(steps=10).run()
            with lp.testing.worker(state=tmp_path, attempt=2):
                assert Trainer(steps=20).run() == 20

    Args:
        state: The folder or the URL for saved state, as in a launch with `state=…`. With a URL, there is no
            `state_dir`. Without `state`, the worker can't save anything, and finds nothing saved.
        rank: The worker's `replica_index`.
        of: The number of replicas in the worker's group.
        attempt: The number of the worker's attempt.

    Raises:
        ValueError: `rank` isn't below `of`, or is negative.
    """
    if not 0 <= rank < of:
        raise ValueError(f"rank={rank} is no replica of {of}")
    name = f"{label}-{rank}"
    place = "" if state is None else os.fspath(state)
    places = StatePlaces("", "")
    if place:
        own = "" if is_url(place) else os.path.join(os.path.abspath(place), name)
        group = os.path.join(os.path.abspath(place), "groups", label) if own else ""
        places = StatePlaces(own, own or f"{place}/{name}", group, is_kept=True)

    def answer(event: Event) -> None:
        """Answer an event as the supervisor would."""
        if not isinstance(event, BarrierReached):
            return
        if of > 1:
            raise NotRunningError(
                f"{name} cannot pass barrier {event.name!r}: lp.testing.worker(of={of}) has no other workers"
                " that come to it. Launch the program, lp.testing.run(…), or leave `of` out."
            )
        me.link.watermarks.grow({f"{BARRIER}{event.name}": event.number})

    me = RunContext(
        program=_PROGRAM,
        name=name,
        label=label,
        replica_index=rank,
        num_replicas=of,
        attempt=attempt,
        seed=seed_of(_PROGRAM, name),
        launch_type="test",
        link=SupervisorLink(name, attempt, answer),
        state=OwnState(name, places),
    )
    context.inherit()
    with context.entered(me):
        try:
            yield me
        finally:
            me.stop.request()
        loop = EventLoop(name)
        try:
            user_code.call_exit_handlers(loop)
        finally:
            loop.close()
