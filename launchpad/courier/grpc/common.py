"""The import of gRPC, and the code that the client and the servers over gRPC share.

- The names and options on which both ends agree, and the code that makes a courier frame one gRPC message.
- The facts about the caller in the metadata of a call (`CallerMetadata`).
- Two kinds of handlers that gRPC has no functions for. gRPC reads the message of a unary call before it
  calls the handler. So `refuse` makes a streaming handler, which reads nothing. And gRPC's unary handlers
  answer when they return. So `unary_handler` makes a handler that answers with a stream of messages, but
  sends only one message, now or later. On the wire that is the same.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from launchpad.courier import caller, extras
from launchpad.courier.caller import Peer
from launchpad.courier.codec import compression
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol import framing
from launchpad.courier.transport import network_address as endpoints

try:
    import grpc
    from google.protobuf import struct_pb2  # noqa: F401
    from grpc_health.v1 import health_pb2  # noqa: F401
    from grpc_reflection.v1alpha import reflection  # noqa: F401
except ImportError as missing:
    raise ImportError(
        "an address `grpc:…` needs gRPC, which is not (fully) installed here. "
        f"Run: {extras.install_command('grpc')} ({missing})"
    ) from missing

# The limit on what can be sent or accepted at once, whatever the user asks for. gRPC counts the bytes of a
# message in an int, and `_HEADERS` of these bytes may be courier's headers.
_HEADERS = 1 << 20
MAX_BYTES = (1 << 31) - 1 - _HEADERS

COURIER = "launchpad.courier.Courier"
HELLO, KEEP_OPEN, CALL = (f"/{COURIER}/{name}" for name in ("Hello", "Stay", "Call"))

# The names of a call's metadata. gRPC wants `-bin` at the end of a name if the value is not text.
TOKEN = "courier-token-bin"
PEER = "courier-peer-bin"
INCARNATION = "courier-incarnation-bin"
PEER_START = "courier-peer-start-bin"
_PEER_START = struct.Struct("<I16s")
TAKES_BYTES = "courier-takes-bytes"
NOT_RUN = "courier-not-run"

Send = Callable[[Any], None]  # called with the one message, and then with None at the end

_BEARER = "Bearer "
_SCRATCH = 4 << 10


_first_pid = functools.cache(os.getpid)  # the process that first used gRPC, and has its threads


def check_process() -> None:
    """Raise RuntimeError in a process that was forked from one that had used gRPC."""
    if _first_pid() != os.getpid():
        raise RuntimeError(
            f"this process ({os.getpid()}) was forked from one ({_first_pid()}) that had used gRPC, "
            "which does not survive that. Use an address unix: or tcp: here, or start the process "
            "by spawn (multiprocessing.set_start_method('spawn'))."
        )


def tune(endpoint: endpoints.Endpoint) -> list[tuple[str, Any]]:
    """Return options for both ends. With them, an end notices within 3 s that a remote peer vanished."""
    options: list[tuple[str, Any]] = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", 16 << 10),
    ]
    try:
        if all(endpoints.is_loopback(where[0]) for _, where in endpoints.resolve(endpoint)):
            return options
    except OSError:
        pass
    return [
        *options,
        ("grpc.keepalive_time_ms", 1000),
        ("grpc.keepalive_timeout_ms", 2000),
        ("grpc.http2.ping_timeout_ms", 2000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ]


def encode_frame(
    kind: int,
    method: bytes,
    body: bytes,
    buffers: Sequence[memoryview],
    header_data: bytes = b"",
    *,
    compress: bool = False,
) -> bytes:
    """Return one frame, in which everything is copied. The caller may change its arrays afterwards."""
    if compress:
        body, buffers, header_data = compression.pack_if_worthwhile(body, buffers, header_data)
    return b"".join(framing.encode(kind, 0, method, body, buffers, 0, header_data))


def decode_frame(message: bytes, max_bytes: int) -> framing.Fields:
    """Decode what `encode_frame` made, without unpacking it. Raise ProtocolError if it is not one frame.

    The buffers are private and writable.
    """
    decoder = framing.FrameDecoder(max_bytes=max_bytes, scratch_bytes=_SCRATCH)
    frames: list[framing.Fields] = []
    remainder = memoryview(message)
    while remainder:
        n = min(len(remainder), len(decoder.buffer))
        decoder.buffer[:n] = remainder[:n]
        frames += decoder.received(n)
        remainder = remainder[n:]
    if len(frames) != 1 or not decoder.is_between_frames:
        raise ProtocolError(f"a message of {len(message)} bytes is not one courier frame")
    return frames[0]


class CallerMetadata:
    """The facts about a caller that are known before its call is read."""

    def __init__(self, metadata: Any) -> None:
        values = {entry[0]: entry[1] for entry in metadata or ()}
        self._token = bytes(values.get(TOKEN, b""))
        authorization = str(values.get("authorization", ""))
        if TOKEN not in values and authorization.startswith(_BEARER):
            with contextlib.suppress(ValueError):
                self._token = bytes.fromhex(authorization.removeprefix(_BEARER))
        #: The peer, as it describes itself. The name is empty if the caller is not a courier client.
        self.peer = Peer(bytes(values.get(PEER, b"")[:255]).decode(errors="replace"))
        start = bytes(values.get(PEER_START, b""))
        if len(start) == _PEER_START.size:
            self.peer = Peer(self.peer.name, *_PEER_START.unpack(start))
        self.incarnation = bytes(values.get(INCARNATION, b""))
        limit = str(values.get(TAKES_BYTES, ""))
        #: The size of the largest result that the caller accepts.
        self.takes_bytes = int(limit) if limit.isdecimal() and len(limit) < 20 else MAX_BYTES
        #: The caller's span, as in W3C Trace Context; empty if the caller does not trace.
        self.trace = str(values.get("traceparent", "")).encode()

    def has_token(self, token: bytes) -> bool:
        """Return True if the caller sent this token. The comparison takes constant time.

        For an empty `token`, the caller must not have sent a token.
        """
        return hmac.compare_digest(self._token, token)


def metadata_of(peer: Peer) -> tuple[tuple[str, bytes], ...]:
    """Return the metadata by which a client describes itself."""
    return (PEER, peer.name.encode()), (PEER_START, _PEER_START.pack(*peer[1:]))


class GrpcCaller:
    """The caller of a call over gRPC. Run the call's method inside its `with` block."""

    call_id = 0

    def __init__(self, peer: Peer, context: grpc.ServicerContext) -> None:
        self.peer = peer
        self._context = context

    def is_gone(self, call_id: int = 0) -> bool:
        return not self._context.is_active()

    def __enter__(self) -> None:
        self._token = caller.current.set(self)

    def __exit__(self, *_: object) -> None:
        caller.current.reset(self._token)


def refuse(code: grpc.StatusCode, text: str, **trailing: str) -> grpc.RpcMethodHandler:
    """Return a handler that answers with `code` and the `trailing` metadata (`_` in names becomes `-`)."""

    def answer(_: object, context: grpc.ServicerContext) -> Iterator[bytes]:
        fail(context, code, text, **trailing)
        return iter(())

    return grpc.stream_stream_rpc_method_handler(answer)


def fail(context: grpc.ServicerContext, code: grpc.StatusCode, text: str, **trailing: Any) -> None:
    """Set how the call ends. The code that calls this function must still end the call."""
    if trailing:
        context.set_trailing_metadata(
            tuple((name.replace("_", "-"), value) for name, value in trailing.items())
        )
    context.set_code(code)
    context.set_details(text)


def unary_handler(
    answer: Callable[[Any, grpc.ServicerContext, Send], None],
    parse: Callable[[bytes], Any] | None = None,
    write: Callable[[Any], bytes] | None = None,
) -> grpc.RpcMethodHandler:
    """Return a handler that calls `answer(request, context, send)`, and then occupies no thread."""
    run = functools.partial(answer)  # a bound method takes no attributes
    run.experimental_non_blocking = True  # type: ignore[attr-defined]
    return grpc.unary_stream_rpc_method_handler(run, parse, write)
