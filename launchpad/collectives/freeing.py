"""What of torch.distributed belongs to one rank in one generation, so that it is freed and dropped in time.

the generation ends  ──▶ gloo's connections are shut, nccl is aborted: what waits in C++ raises at once
torch raises         ──▶ `cause_of`: what has ended the generation, PeerFailed with the name of the rank
the function ends    ──▶ the groups are dropped: no thread of torch's is left
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from launchpad.collectives.generation import NOTICE_S, Generation
from launchpad.courier.interruptions import Event
from launchpad.courier.own_threads import OwnThread
from launchpad.errors import Stopped
from launchpad.runtime import context

T = TypeVar("T")

_KINDS = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError"})


def in_thread(generation: Generation, make: Callable[[], T]) -> T:
    """Calls `make`, which may wait in C++, in another thread, and waits for that in Python.

    A group of gloo is connected in its constructor. If a rank dies after all have found each other there, it
    waits for that one until its timeout, and has no connection yet that could be ended.

    Raises:
        PeerFailed: the generation has ended.
        Stopped: the program stops.
    """
    outcomes: list[tuple[T | None, BaseException | None]] = []
    is_over = Event()

    def run() -> None:
        try:
            outcomes.append((make(), None))
        except BaseException as error:
            outcomes.append((None, error))
        is_over.set()

    def wake(*_: object) -> None:
        is_over.set()

    me = context.current()
    context.inherit()
    generation.on_end(wake)
    me.stop.call_at_stop(wake)
    try:
        OwnThread(target=run, name=f"{me.name}-connect").start()
        is_over.wait()
    finally:
        me.stop.remove_handler(wake)
    generation.check()
    if not outcomes:
        raise Stopped
    result, error = outcomes[0]
    if error is not None:
        raise cause_of(error, generation) or error
    return result  # type: ignore[return-value]


def cause_of(error: BaseException, generation: Generation) -> BaseException | None:
    """What an error of torch or jax comes of: that a rank has failed or has left, or that the program stops.

    None if it is no such error, or nothing of that kind is known within 3 s.
    """
    if type(error).__name__ not in _KINDS and "gloo" not in str(error).lower():
        return None  # it is about no connection of gloo's or nccl's, and not about torch's store
    if generation.wait_end(NOTICE_S):
        return generation.error
    if context.current().stop.event.is_set():
        return Stopped()
    if generation.returned:
        return generation.missed(min(generation.returned), "while others wait for it")
    return None
