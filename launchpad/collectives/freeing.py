"""Freeing the resources of torch.distributed that belong to one rank in one generation.

the generation ends  ──▶ gloo's connections are shut, nccl is aborted, so that waits in C++ raise at once
torch raises         ──▶ `cause_of` finds the error that ended the generation, PeerFailed with the rank's name
the function ends    ──▶ the groups are dropped, and all of torch's threads end
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
    """Call `make`, which may wait in C++, in another thread, and wait for that thread in Python.

    The constructor of a gloo group connects the ranks. If a rank dies after all ranks have found each other,
    the constructor waits for this rank until the timeout, and there is no connection yet that could be ended.

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
    """Return the cause of an error of torch or jax: an error that says which rank has failed, or Stopped.

    Return None if the error is of another kind, or if no cause becomes known within 3 s.
    """
    if type(error).__name__ not in _KINDS and "gloo" not in str(error).lower():
        # The error has nothing to do with connections of gloo or nccl, or with torch's store.
        return None
    if generation.wait_end(NOTICE_S):
        return generation.error
    if context.current().stop.event.is_set():
        return Stopped()
    if generation.returned:
        return generation.missed(min(generation.returned), "while others wait for it")
    return None
