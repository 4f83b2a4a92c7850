"""A client's way to a server by gRPC."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any

from launchpad.courier.clients.options import Options
from launchpad.courier.clients.patience import Patience
from launchpad.courier.clients.peer import Peer
from launchpad.courier.over_grpc import frames, package
from launchpad.courier.over_grpc.grpc_call import GrpcCall
from launchpad.courier.over_grpc.grpc_link import GrpcLink
from launchpad.courier.protocol import notes, wire
from launchpad.courier.servers.serving import serving
from launchpad.courier.values import codec
from launchpad.courier.watching import tracing
from launchpad.courier.watching.counts import Counts

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launchpad.courier.clients.future import CallFuture

_PATIENCE_S = 1.0


class GrpcChannel:
    """Makes the calls of one client, with one set of options. Safe from any number of threads."""

    def __init__(self, peer: Peer, options: Options) -> None:
        package.parse(peer.address)
        peer.max_bytes = package.limit(peer.max_bytes)
        self.peer = peer
        self.options = options
        self.counts = Counts()
        self._notes = b""
        self._link = GrpcLink(peer)

    @property
    def n_connections(self) -> int:
        """Open now: at most one."""
        return int(self._link.is_greeted)

    def with_options(self, options: Options) -> GrpcChannel:
        """The same connection, other options."""
        view = copy.copy(self)
        view.options = options
        return view

    def with_trace(self, trace: bytes) -> GrpcChannel:
        """For one call: it says which span it belongs to."""
        view = copy.copy(self)
        view._notes = notes.encode({notes.TRACE: trace})
        return view

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        """Calls and waits for the answer in this thread."""
        if (spans := tracing.spans) is not None and not self._notes:
            return spans.call(self, method, args, kwargs)
        future = self._begin(method, args, kwargs)
        try:
            self._wait(future, method)
            return future.result()
        finally:
            del future  # an exception's traceback must not lead back to the exception

    def submit(self, method: bytes, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls without waiting."""
        if (spans := tracing.spans) is not None and not self._notes:
            return spans.submit(self, method, args, kwargs)
        return self._begin(method, args, kwargs)

    def close(self) -> None:
        """Closes the connection; a later call opens another. Futures in flight end with an error."""
        self._link.close()

    def _begin(self, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFuture:
        package.check_process()
        body, buffers = codec.encode_call(args, kwargs)
        if buffers is None:
            raise TypeError(
                f"an argument of {method.decode()!r} is an iterator, and gRPC carries no streams of ours: "
                "give a list, or serve at a unix: or tcp: address"
            )
        n_bytes = wire.size(body, buffers)
        compress = self.options.compress
        frame = frames.seal(wire.CALL, method, body, buffers, self._notes, compress=compress)
        call = GrpcCall(self.peer, method, frame, self.options, self._new_deadline(), n_bytes)
        call.count(self.counts[method])
        self._link.send(call)
        return call.future

    def _new_deadline(self) -> float | None:
        timeout_s, on_behalf_of = self.options.timeout_s, serving.get()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return deadline if on_behalf_of is None else on_behalf_of.limit(deadline)

    def _wait(self, future: CallFuture, method: bytes) -> None:
        from concurrent.futures import wait

        patience = Patience(self.peer, method)
        try:
            while not wait((future,), _PATIENCE_S).done:
                patience.look()
        except BaseException:  # interrupted: a call that has not begun shall not begin
            future.cancel()
            raise
