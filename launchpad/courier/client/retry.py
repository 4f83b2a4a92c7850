"""Which calls are made again, and how soon.

not sent yet, or the server answers that it has not run (NotRun)    again, until its deadline
a fresh connection did not take it                                  again, `MAX_TRIES` times
sent and not answered, and it may run twice (idempotent)            again
sent and not answered, any other                                    never: OutcomeUnknown
the server refuses us, or speaks another protocol (`is_final`)      never: its error
this process has no descriptor for a connection                     never: NotSent
"""

from __future__ import annotations

import errno
import threading

from launchpad.courier.errors import CourierError
from launchpad.courier.interruptions import Event

MAX_TRIES = 3  # of a request that a fresh connection did not take

_FIRST_PAUSE_S = 0.001
_LONG_PAUSE_S = 0.02
_LAST_PAUSE_S = 0.05  # the most that a server which has just come up goes unnoticed


_paused: dict[threading.Event, str] = {}
"""What a paused thread waits for → the address of the server; of single operations, so without a lock."""


class NotRun(Exception):
    """The server answers that this call has not run and will not: the caller may make it again."""


def is_final(error: BaseException) -> bool:
    """An error that no further attempt to connect will mend."""
    return isinstance(error, CourierError | PermissionError)


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """True if this process, or its host, may open no more files: nothing is wrong with the server."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def next_pause(pause_s: float = 0.0) -> float:
    """How long to pause after a pause of `pause_s`; without one, the first pause.

    Short ones first, for a server that is just being started; hundreds of clients that wait for longer
    must not take the processor from servers that start.
    """
    growth = 2.0 if pause_s < _LONG_PAUSE_S else 1.05
    return min(pause_s * growth, _LAST_PAUSE_S) or _FIRST_PAUSE_S


def pause(address: str, pause_s: float) -> None:
    """Waits before the next attempt to connect; less long if `wake` is called for that server meanwhile."""
    woken = Event()
    _paused[woken] = address
    try:
        woken.wait(pause_s)
    finally:
        del _paused[woken]


def wake(address: str) -> None:
    """Has all clients in this process that wait for that server try now: it is up."""
    for woken, waited_for in list(_paused.items()):
        if waited_for == address:
            woken.set()
