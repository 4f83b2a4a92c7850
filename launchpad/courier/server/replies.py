"""The replies of a server's methods, before they are written: their kinds, and the encoding of results.

kind                  body
────────────────────  ─────────────────────────────────────────────────────────────────────────
framing.RESULT        the pickle of the result; its buffers are separate
framing.ERROR         the pickle of an exception
framing.NOT_RUN       the reason why the method did not run
framing.STREAM        a StreamSender; on a pipelined connection, the ticket of one
BARE_VALUE            the value itself, which may share a frame with others
PROMISE               a Promise of the value
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

# Kind, body, buffers. It is a plain tuple, and kinds are plain numbers, because each call makes one.
Reply = tuple[int, Any, list[memoryview]]

# Kinds that are never on the wire. The kinds of frames are smaller numbers.
BARE_VALUE = 252
ANSWERED_SEPARATELY = 253
PROMISE = 254


class EncodedResult(NamedTuple):
    """The outcome of a coroutine, or of a call of `OneThread`, encoded as a reply."""

    reply: Reply


def encode_at_once(result: Any) -> Any:
    """Encode the result of a call before the next call in the same thread can change it.

    Calls that share one thread need no locks, so a method may return a list or an array that the next call
    goes on changing.
    """
    if type(result) in pickling.SCALARS or is_stream(result):
        return result
    kind, body, views = encode_result(result)
    return EncodedResult((kind, body, copies(views)))


def encode_result(result: object) -> Reply:
    """Return the reply that carries the result of a method."""
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
    """Return the reply. If it is larger than the caller accepts, return a reply with MessageTooLarge."""
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
    """Return the reply to a call whose promise is done."""
    try:
        result = promise.result()
    except BaseException as error:
        return framing.ERROR, pickling.encode_error(error), []
    return encode_result(result)
