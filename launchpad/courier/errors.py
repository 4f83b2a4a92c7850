"""The errors that a call can raise, as one tree.

    CourierError
    ├── NotSent              nothing ran: repeating the call is safe
    │   └── Refused          the server did not accept us (token or version); repeating will not help
    ├── OutcomeUnknown       the connection ended while the call was in flight: it may have run
    │   └── StreamBroken     the connection ended in the middle of a stream: items are missing
    ├── WorkerFailed         the supervisor says that the server's worker has failed
    ├── DeadlineExceeded     also a TimeoutError
    ├── MessageTooLarge      the message is larger than the other side accepts; also a ValueError
    ├── ProtocolError        the other side sent bytes that no courier sends; this connection ends
    └── RemoteError          the method failed with something that cannot come back as its own type
        └── MethodNotFound   also an AttributeError

An exception raised by a remote method arrives as its own type wherever that is possible. Its
`__cause__` is then a `RemoteTraceback`, as in `concurrent.futures`, which shows where the server raised the
exception. If the method raised it from another exception, that one is the `RemoteTraceback`'s `__context__`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class CourierError(Exception):
    """The base class of all errors that courier itself raises.

    Example:
        try:
            learner.step(batch)
        except courier.CourierError as error:
            print(error.server, error.address, error.method)

    All of courier's errors can be pickled. `server` is the name that the server gives itself; empty if that
    isn't known.
    """

    def __init__(
        self, message: str = "", *, server: str = "", address: str = "", method: str = ""
    ) -> None:
        # Not super(): the next class in the order may be a user's, with an __init__ of its own.
        Exception.__init__(self, message)
        self.server = server
        self.address = address
        self.method = method

    def __str__(self) -> str:
        # A second base class (OSError, UnicodeError, …) may format itself differently.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, dict(self.__dict__)


class NotSent(CourierError):
    """The call certainly did not run. It is safe to make the call again.

    Example:
        try:
            lp.with_options(learner, wait_for_ready=False).step(batch)
        except lp.courier.NotSent:
            print("the learner is not up yet")
    """


class Refused(NotSent):
    """The server refused the handshake: a wrong token, or another version of courier.

    Also raised if only threads of the server's own process can reach the server, and the caller is in
    another process, such as a forked child.

    Example:
        try:
            lp.courier.Client(address, token=b"of another run").step()
        except lp.courier.Refused as error:
            print(error)
    """


class OutcomeUnknown(CourierError):
    """The connection ended while the call was in flight: the call may have run, fully or in part.

    Courier never repeats such a call. Make the call again only if its method may run twice.

    Example:
        try:
            account.deposit(10)
        except lp.courier.OutcomeUnknown:
            print(f"now there are {account.balance()}")     # it may have run
    """


class StreamBroken(OutcomeUnknown):
    """The connection ended in the middle of a stream: no more items will come.

    Courier never resumes a stream. Call the method again if it may run twice.

    Example:
        rows = []
        try:
            for row in table.rows():
                rows.append(row)
        except lp.courier.StreamBroken:
            print(f"the first {len(rows)} rows, and there are more")
    """


class WorkerFailed(CourierError):
    """The supervisor knows that the worker behind this address has failed.

    Example:
        try:
            learner.step(batch)
        except lp.courier.WorkerFailed as error:
            print(f"{error.server} does not come back")
    """


class DeadlineExceeded(CourierError, TimeoutError):
    """No answer arrived in time. The method may have run, or may still be running.

    Example:
        try:
            loss = lp.with_options(learner, timeout_s=0.1).step(batch)
        except lp.courier.DeadlineExceeded:
            print("no loss within 0.1 s")
    """


class MessageTooLarge(CourierError, ValueError):
    """Arguments or a result are larger than the other side accepts, and were not sent.

    If the result is too large, the method has run.

    Example:
        try:
            learner.step(batch)
        except lp.courier.MessageTooLarge as error:
            print(error)                            # how large it is, and how large it may be
    """


class ProtocolError(CourierError):
    """The peer sent bytes that no courier sends, or more than the limit allows.

    Example:
        try:
            client.step()
        except lp.courier.ProtocolError as error:
            print(f"no courier server at {error.address}")
    """


class RemoteError(CourierError):
    """A remote method failed with an exception that could not arrive as its own type.

    If the exception's type can be imported here, the error is an instance of that type too:
    `except ThatType` still catches it.

    Example:
        try:
            learner.step(batch)
        except lp.courier.RemoteError as error:
            print(error.type_name, error.traceback)

    Attributes:
        type_name: the exception's (or result's) type at the server, `module.Name`.
        remote_repr: its repr at the server.
        traceback: the remote traceback as text.
    """

    def __init__(
        self,
        message: str = "",
        *,
        type_name: str = "",
        remote_repr: str = "",
        traceback: str = "",
        server: str = "",
        address: str = "",
        method: str = "",
    ) -> None:
        CourierError.__init__(self, message, server=server, address=address, method=method)
        self.type_name = type_name
        self.remote_repr = remote_repr
        self.traceback = traceback


class MethodNotFound(RemoteError, AttributeError):
    """The server has no method of this name. `available` lists the methods that it serves.

    Example:
        try:
            learner.stepp(batch)
        except lp.courier.MethodNotFound as error:
            print(error.available)
    """

    def __init__(self, message: str = "", *, available: Iterable[str] = (), **where: Any) -> None:
        RemoteError.__init__(self, message, **where)
        self.available = tuple(available)


class RemoteTraceback(Exception):
    """The server's traceback, as the `__cause__` of an exception that a remote method raised.

    `origin` is the server that first raised the exception, even if the exception passed other servers on
    its way here.

    Example:
        try:
            learner.step(batch)
        except ValueError as error:
            print(error.__cause__)                  # the lines over there
    """

    def __init__(self, text: str, origin: str = "") -> None:
        super().__init__(text, origin)
        self.text = text
        self.origin = origin

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def as_remote_kind(
    kind: type[BaseException], state: dict[str, Any], error: RemoteError
) -> RemoteError:
    """Return `error` with `kind` as an additional type, or `error` itself if the types can't be combined.

    `state` holds the attributes of the original exception. Code that catches `kind` may look at them.
    """
    if isinstance(error, kind) or not issubclass(kind, Exception):
        return error

    def reduce(both: RemoteError) -> tuple[Any, ...]:
        # A class made at run time has no importable name, so its parts travel instead.
        return as_remote_kind, (kind, dict(both.__dict__), RemoteError(*both.args))

    try:
        both: RemoteError = type(kind.__name__, (RemoteError, kind), {"__reduce__": reduce})(
            *error.args
        )
    except Exception:
        # The layouts of the two classes conflict, or `kind` has a `__new__` that takes other arguments.
        return error
    both.__dict__.update(error.__dict__ | state)
    return both
