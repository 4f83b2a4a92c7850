"""The errors that callers get. Each names the server and the method, and says what to do next."""

from __future__ import annotations

import errno
import os

from launchpad.courier.client.options import Options
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.errors import (
    CourierError,
    DeadlineExceeded,
    MessageTooLarge,
    NotSent,
    OutcomeUnknown,
    Refused,
    StreamBroken,
)


def where(peer: ServerInfo, method: bytes, address: str | None = None) -> dict[str, str]:
    """Return the attributes of an error about a call of this method."""
    address = peer.address if address is None else address
    return {"server": peer.server, "address": address, "method": method.decode()}


# The call has not run.


def not_up(peer: ServerInfo, method: bytes) -> NotSent:
    """Return the error of a call that does not wait until its server is up."""
    return NotSent(
        f"{peer} is not up, so {method.decode()!r} was not called. "
        "Start it first, or use wait_for_ready=True.",
        **where(peer, method),
    )


def not_taken(peer: ServerInfo, method: bytes, error: Exception) -> NotSent:
    """Return the error of a call that was not taken: new connections ended, the last one with `error`."""
    return NotSent(
        f"{peer} did not take the call of {method.decode()!r}, which has not run: {error}",
        **where(peer, method),
    )


def closed(peer: ServerInfo, method: bytes) -> NotSent:
    """Return the error of a call whose client was closed before the call was sent."""
    return NotSent(
        f"the client of {peer} was closed before {method.decode()!r} was sent",
        **where(peer, method),
    )


def out_of_descriptors(peer: ServerInfo, method: bytes = b"") -> NotSent:
    """Return the error of a call for which this process could open no connection."""
    return NotSent(
        f"this process has no file descriptor left for a connection to {peer}: the call was not sent."
        " Close streams, clients and files that are not needed, or raise the limit (`ulimit -n`)",
        **where(peer, method),
    )


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Return True if this process or its host can open no more files. The server may be fine."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def check_size(peer: ServerInfo, method: bytes, n_bytes: int) -> None:
    """Raise MessageTooLarge if the server would not accept arguments of this size."""
    limit = peer.takes_bytes
    if n_bytes > limit:
        raise MessageTooLarge(
            f"the arguments of {method.decode()!r} are {n_bytes} bytes, and {peer} takes {limit} at "
            "once. Send them in several calls, or give the server a larger max_bytes.",
            **where(peer, method),
        )


def refused(peer: ServerInfo, message: str) -> Refused:
    """Return the error of a handshake that failed."""
    return Refused(message, **where(peer, b""))


def in_another_process(peer: ServerInfo) -> Refused:
    """Return the error of a client whose server only threads of another process can reach."""
    assert peer.made_in is not None
    return refused(
        peer,
        f"{peer} is reached by threads of its own process alone: the one in which the client "
        f"was made (pid {peer.made_in[0]}). This is another (pid {os.getpid()}). Give the server a "
        "unix: address, or a tcp: one for other hosts; or launch the program as processes.",
    )


def wrong_token(peer: ServerInfo) -> Refused:
    """Return the error of a handshake in which the server did not accept our token."""
    reason = "it is another one" if peer.find_token() else "no token was found for this address"
    return refused(
        peer,
        f"{peer} refused our token ({reason}). Give the client the server's, which is its `token`:"
        " Client(address, token=…), or add it to the keyring under this address. Only clients of the"
        " server's user on its host find it by themselves. A process that a worker has started gets"
        " it from the worker, which has it: courier.keyring.find(address).",
    )


def is_final(error: BaseException) -> bool:
    """Return True for an error that every further attempt to connect would raise, too."""
    return isinstance(error, CourierError | PermissionError)


# The call may have run.


def late(
    peer: ServerInfo, method: bytes, options: Options, *, in_stream: bool = False
) -> DeadlineExceeded:
    """Return the error of a call past its deadline. With `in_stream`, return that of a wait for an item."""
    limit = f"within {options.timeout_s} s"
    if options.timeout_s is None:
        reason = "waited for it" if in_stream else "it was made for"
        limit = f"before the deadline of the call that {reason}"
    if in_stream:
        message = (
            f"the stream {method.decode()!r} of {peer} had no item {limit}. It is open still: go on "
            "waiting for one, or close it."
        )
    else:
        message = (
            f"{method.decode()!r} of {peer} did not answer {limit}. "
            "It may have run, or be running still."
        )
    return DeadlineExceeded(message, **where(peer, method))


def lost(
    peer: ServerInfo, method: bytes, address: str | None = None, n_items: int | None = None
) -> Exception:
    """Return the error of a call that was in flight when the connection to `address` ended.

    With `n_items`, the connection ended in the middle of a stream, after that many items.
    """
    try:
        peer.raise_if_failed()
    except Exception as failure:
        return failure
    kind = OutcomeUnknown
    when = f"while {method.decode()!r} was in flight: it may have run"
    if n_items is not None:
        kind = StreamBroken
        when = f"in the middle of the stream {method.decode()!r}, after {n_items} items"
    return kind(
        f"the connection to {peer.describe(address)} ended {when}. "
        "Call it again only if it may run twice.",
        **where(peer, method, address),
    )
