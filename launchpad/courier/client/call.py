"""A call that waits for its answer, and the rule by which any request is sent again.

what became of the request                                          is it sent again?
──────────────────────────────────────────────────────────────────  ─────────────────────────────────────────
it was not sent in full, as the connection or the server was gone    yes, until its deadline
the server answers that it has not run (NotRun, or a GOAWAY)         yes, until its deadline
a fresh connection ended before it was sent in full                  yes, `MAX_TRIES` times; then NotSent
it was sent and not answered; it may run twice (`may_repeat`)        yes
it was sent and not answered; it may not run twice                   never: OutcomeUnknown
the server refuses us, or speaks another protocol                    never: its error (`call_errors.is_final`)
this process has no descriptor left for a connection                 never: NotSent

A server runs complete frames only. So as long as a write fails, its frame was not complete, and nothing
ran. That covers the server which has restarted since the last call: the first write to the old connection
fails. (Over TCP it does not, so there `is_stale` is asked before.) Once a request is written in full, and
no answer comes, the outcome is unknown. A server that stops in an orderly way sends last of all that
nothing else was run.

The same holds for futures. What is sent again there is put into the queue of the next connection
(reader.py), is given to the pipeline (shm_calls.py), or waits for the next handshake (grpc/connection.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from launchpad.courier.client import call_errors
from launchpad.courier.client.options import Options
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.codec import compression, pickling
from launchpad.courier.errors import ProtocolError
from launchpad.courier.interruptions import Event
from launchpad.courier.protocol import framing

R = TypeVar("R")

MAX_TRIES = 3  # of a request that a fresh connection did not take

_FIRST_PAUSE_S = 0.001
_LONG_PAUSE_S = 0.02
_LAST_PAUSE_S = 0.05  # the most that a server which has just come up goes unnoticed

_paused: dict[threading.Event, str] = {}
"""What a paused thread waits for → the address of the server; of single operations, so without a lock."""


class NotRun(Exception):
    """The server answers that this call has not run and will not: the caller may make it again."""


def may_repeat(peer: ServerInfo, method: bytes, options: Options) -> bool:
    """True if a call may run twice: by the options of its caller, or as its class has declared."""
    return options.idempotent or method in peer.idempotent


def decode_reply(peer: ServerInfo, method: bytes, options: Options, reply: framing.Fields) -> Any:
    """Return the value that a reply carries, or raise the exception that it carries.

    Raises:
        NotRun: the call may be made again.
    """
    kind, _, _, body, buffers, _, header_data = reply
    if header_data:
        headers = framing.decode_headers(header_data)
        body, buffers = compression.unpack_if_packed(headers, body, buffers, peer.max_bytes)
    if kind == framing.RESULT:
        try:
            return pickling.loads(body, buffers)
        except Exception as error:
            error.add_note(
                f"(the result of {method.decode()!r}, which has run at {peer}, cannot be "
                "unpickled here: its classes have to be importable on both sides)"
            )
            raise
    if kind == framing.ERROR:
        raise pickling.decode_error(
            body, server=peer.server, address=peer.address, method=method.decode()
        )
    if kind != framing.NOT_RUN:
        raise ProtocolError(f"{peer} answered with a frame of kind {kind}")
    if body == framing.LATE:
        raise call_errors.late(peer, method, options)
    raise NotRun


# Waiting for a server that is not up.


def wait_for(
    attempt: Callable[[float | None], R | None],
    peer: ServerInfo,
    method: bytes,
    options: Options,
    deadline: float | None,
) -> R:
    """Repeat `attempt(seconds left)` until it returns something, with short pauses between.

    Raises what ends the wait: the client's `failure_check`, the deadline, or NotSent at once for a
    client with wait_for_ready=False.
    """
    pause_s = 0.0
    while (outcome := attempt(time_left(peer, method, options, deadline))) is None:
        pause_s = pause_before_deadline(pause_s, peer, method, options, deadline)
    return outcome


def pause_before_deadline(
    pause_s: float, peer: ServerInfo, method: bytes, options: Options, deadline: float | None
) -> float:
    """Wait before the next attempt of a call, after a pause of `pause_s`; return for how long."""
    check_wait(peer, method, options)
    left = time_left(peer, method, options, deadline)
    pause_s = next_pause(pause_s)
    pause(peer.address, pause_s if left is None else min(pause_s, left))
    return pause_s


def check_wait(peer: ServerInfo, method: bytes, options: Options) -> None:
    """Raise if there is no point in waiting for a server that is not up."""
    peer.raise_if_failed()
    if not options.wait_for_ready:
        raise call_errors.not_up(peer, method)


def time_left(
    peer: ServerInfo, method: bytes, options: Options, deadline: float | None
) -> float | None:
    """Return the seconds until the deadline, None without one; raise DeadlineExceeded past it."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise call_errors.late(peer, method, options)
    return left


def next_pause(pause_s: float = 0.0) -> float:
    """Return how long to pause after a pause of `pause_s`; without one, the first pause.

    Short ones first, for a server that is just being started; hundreds of clients that wait for longer
    must not take the processor from servers that start.
    """
    growth = 2.0 if pause_s < _LONG_PAUSE_S else 1.05
    return min(pause_s * growth, _LAST_PAUSE_S) or _FIRST_PAUSE_S


def pause(address: str, pause_s: float) -> None:
    """Wait before the next attempt to connect; less long if `wake` is called for that server meanwhile."""
    woken = Event()
    _paused[woken] = address
    try:
        woken.wait(pause_s)
    finally:
        del _paused[woken]


def wake(address: str) -> None:
    """Have all clients in this process that wait for that server try now: it is up."""
    for woken, waited_for in list(_paused.items()):
        if waited_for == address:
            woken.set()
