"""The replies of a server's methods, before they are written: their kinds, and what makes one of a result.

kind                  body
────────────────────  ─────────────────────────────────────────────────────────────────────────
framing.RESULT        the pickle of the result, whose buffers stand beside it
framing.ERROR         the pickle of an exception
framing.NOT_RUN       why the method has not run
framing.STREAM        a StreamSender; on a pipelined connection, the ticket of one
BARE_VALUE            the value itself, which may share a frame with others
PROMISE               a Promise, which will have the value
ANSWERED_SEPARATELY   nothing: another thread answers
"""

from __future__ import annotations

from typing import Any, NamedTuple

from launchpad.courier.buffers import copies
from launchpad.courier.call_stack import current_call
from launchpad.courier.codec import pickling
from launchpad.courier.codec.iterators import is_stream
from launchpad.courier.errors import MessageTooLarge
from launchpad.courier.promise import Promise
from launchpad.courier.protocol import framing
from launchpad.courier.streams.sender import StreamSender

# Kind, body, buffers. It is a plain tuple, and its kinds plain numbers, because each call makes one.
Reply = tuple[int, Any, list[memoryview]]

# Kinds that are never on the wire; those of frames are smaller.
BARE_VALUE = 252
ANSWERED_SEPARATELY = 253
PROMISE = 254


class EncodedResult(NamedTuple):
    """The outcome of a coroutine, or of a call of `OneThread`, encoded as a reply."""

    reply: Reply


def encode_at_once(result: Any) -> Any:
    """Encode what a call has returned before the next one of the same thread runs, which may change it.

    Calls of one thread need no locks: one may return a list or an array that the next one goes on with.
    """
    if type(result) in pickling.SCALARS or is_stream(result):
        return result
    kind, body, views = encode_result(result)
    return EncodedResult((kind, body, copies(views)))


def encode_result(result: object) -> Reply:
    """The reply that carries what a method has returned."""
    if type(result) is EncodedResult:
        return result.reply
    if is_stream(result):
        return framing.STREAM, StreamSender(result, call_context=current_call.get()), []
    if isinstance(result, StreamSender):
        return framing.STREAM, result, []
    try:
        body, views = pickling.encode(result)
        return framing.RESULT, body, views
    except BaseException as error:
        return framing.ERROR, pickling.encode_unpicklable(result, error), []


def fit(reply: Reply, max_bytes: int) -> Reply:
    """The reply, or MessageTooLarge where it is more than the caller takes at once."""
    _, body, views = reply
    size = framing.size(body, views)
    if size <= max_bytes:
        return reply
    error = MessageTooLarge(
        f"the result is {size} bytes, and the caller takes {max_bytes} at once. The method has run. "
        "Return it in parts, or give the client a larger max_bytes."
    )
    return framing.ERROR, pickling.encode_error(error, is_ours=True), []


def encode_outcome(promise: Promise) -> Reply:
    """The reply to a call whose outcome is there."""
    try:
        result = promise.result()
    except BaseException as error:
        return framing.ERROR, pickling.encode_error(error), []
    return encode_result(result)
