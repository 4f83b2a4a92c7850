"""The channel over gRPC, which carries a client's calls to its server."""

from __future__ import annotations

from concurrent.futures import wait
from typing import Any

from launchpad.courier import call_stack
from launchpad.courier.client.channel import Channel
from launchpad.courier.client.connection import CHECK_EVERY_S
from launchpad.courier.client.future import CallFuture
from launchpad.courier.client.options import Options
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.client.watchdog import SlowCallWatchdog
from launchpad.courier.codec import pickling
from launchpad.courier.grpc import common
from launchpad.courier.grpc.call import GrpcCall
from launchpad.courier.grpc.connection import GrpcConnection
from launchpad.courier.protocol import framing
from launchpad.courier.telemetry import tracing
from launchpad.courier.transport import network_address


class GrpcChannel(Channel):
    """A channel over gRPC. A plain call makes a future and waits for it."""

    def __init__(self, peer: ServerInfo, options: Options) -> None:
        super().__init__(peer, options)
        network_address.parse(peer.address, network_address.GRPC)
        peer.max_bytes = min(peer.max_bytes, common.MAX_BYTES)
        self._connection = GrpcConnection(peer)

    @property
    def n_connections(self) -> int:
        """The number of connections that are open now: at most one."""
        return int(self._connection.open_call is not None)

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        spans = tracing.spans
        if spans is not None and not self.trace_header:
            return spans.call(self, method, args, kwargs)
        future = self._submit(method, args, kwargs)
        watchdog = SlowCallWatchdog(self.peer, method)
        try:
            with call_stack.waiting_for(self.peer, method):
                while not wait((future,), CHECK_EVERY_S).done:
                    watchdog.check()
            return future.result()
        except BaseException:  # after an interruption, a call that has not begun must not begin
            future.cancel()
            raise
        finally:
            del future  # an exception's traceback must not lead back to the exception

    def _submit(self, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFuture:
        common.check_process()
        body, buffers = pickling.encode_call(args, kwargs)
        if buffers is None:
            raise TypeError(
                f"an argument of {method.decode()!r} is an iterator, and gRPC carries no streams of ours: "
                "give a list, or serve at a unix: or tcp: address"
            )
        frame = common.encode_frame(
            framing.CALL, method, body, buffers, self.trace_header, compress=self.options.compress
        )
        call = GrpcCall(self, method, frame, framing.size(body, buffers))
        self._connection.send(call)
        return call.future

    def close(self) -> None:
        self._connection.close()
