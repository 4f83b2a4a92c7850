"""CourierNode: a node with an object whose public methods other nodes can call."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar, cast

from launchpad.address import COURIER, Address
from launchpad.courier import Client, Server
from launchpad.courier.client.client import T
from launchpad.courier.client.options import Options
from launchpad.courier.client.typed import CourierClient
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.server.decorators import (
    ONE_AT_A_TIME,
    idempotent_methods,
    public_methods,
    served_methods,
    warn_of_shadowed_methods,
)
from launchpad.courier.server.event_loop import EventLoop
from launchpad.courier.server.one_thread import OneThread
from launchpad.courier.transport.link import Bandwidth, Delay, Link
from launchpad.edges.recording import CallOrder, Ordering, Record, Replay, order_of
from launchpad.errors import DefinitionError
from launchpad.handle import Handle
from launchpad.nodes import hooks
from launchpad.nodes.base import Node
from launchpad.nodes.python import BuildObject, RunnableNode
from launchpad.runtime import context
from launchpad.runtime.events import Bound
from launchpad.runtime.executable import Executable, Run

ServiceClientT = TypeVar("ServiceClientT", covariant=True)

_SERVER_OPTIONS = frozenset({"thread_pool_size", "max_bytes", "also_at"})
_CLIENT_OPTIONS = frozenset({"call_timeout", "wait_for_ready", "max_bytes", "compress"})
# Seconds that a running call may still take after the stop of its server.
_GRACE_S = 1.0


class CourierHandle(Handle["CourierClient[T]"], Generic[T]):
    """The handle of a CourierNode; in a worker it turns into a `CourierClient`.

    Example:
        learner = program.add_node(lp.CourierNode(Learner), label="learner")
        with lp.launch(program):
            client = learner.dereference()          # in the script; nodes that take `learner` get a client
            loss = client.step([1.0, 2.0])
    """

    def __init__(
        self,
        node: Node[Any],
        address: Address,
        client_kwargs: Mapping[str, Any] | None = None,
        idempotent: Collection[str] = (),
    ):
        super().__init__(node)
        self._address = address
        self._idempotent = tuple(idempotent)
        self._client_kwargs = _checked_client(client_kwargs, "courier_client_kwargs")
        self._link: Link | None = None
        self.ordering: Ordering | None = None

    def through(self, *transforms: Delay | Bandwidth | Ordering) -> CourierHandle[T]:
        """Return another handle of the node, whose clients send their calls through these transforms.

        Use it for tests and experiments.

        Example:
            slow = learner.through(lp.edges.Delay(0.05), lp.edges.Bandwidth(10e6))
            program.add_node(lp.PyClassNode(Actor, slow), label="straggler")

        Args:
            transforms: Transforms of `lp.edges`. `Delay` and `Bandwidth` delay the messages of each client
                that the new handle turns into. `Record` and `Replay` apply to the server, and therefore to
                the calls of all its clients.

        Raises:
            TypeError: a transform is of another type.
            DefinitionError: more than one of the transforms is a Record or a Replay.
        """
        new = type(self)(
            cast("Node[Any]", self.node), self._address, self._client_kwargs, self._idempotent
        )
        rules = [*(self._link.rules if self._link is not None else ())]
        orderings = [self.ordering] if self.ordering is not None else []
        for transform in transforms:
            if isinstance(transform, Delay | Bandwidth):
                rules.append(transform)
            elif isinstance(transform, Record | Replay):
                orderings.append(transform)
            else:
                raise TypeError(
                    f"through takes lp.edges.Delay, Bandwidth, Record and Replay, got {transform!r}"
                )
        if len(orderings) > 1:
            raise DefinitionError(
                f"a handle goes through one of Record and Replay, got {orderings}"
            )
        new._link = Link(*rules) if rules else None
        new.ordering = orderings[0] if orderings else None
        return new

    def set_client_kwargs(self, **kwargs: Any) -> None:
        """Set the client's options: `call_timeout`, `wait_for_ready`, `max_bytes`, `compress`."""
        self._client_kwargs = _checked_client(kwargs, "client option")

    @property
    def client_options(self) -> tuple[str, dict[str, Any]]:
        """The uid of the handle's address, and the options of the client that the handle turns into."""
        return self._address.uid, self._client_options()

    def dereference(self) -> CourierClient[T]:
        """Return the client, which connects when it is first used.

        Raises:
            NotRunningError: called outside a running program.
        """
        place = self._address.place()
        client = Client[Any](
            self._address.lookup(),
            name=place.worker,
            failure_check=place.failure_check,
            link=self._link,
            **self._client_options(),
        )
        return cast("CourierClient[T]", client)

    def _client_options(self) -> dict[str, Any]:
        return {"idempotent": self._idempotent, **self._client_kwargs}


class ServiceHandle(CourierHandle[Any], Generic[ServiceClientT]):
    """The handle of a node that has its own class of client, as a queue does.

    Example:
        class CounterHandle(ServiceHandle[Counter]):
            made_into = Counter
    """

    made_into: ClassVar[type]
    """The class of the client. Its constructor takes the `CourierClient` with which it calls the node."""

    @property
    def client_options(self) -> tuple[str, dict[str, Any]]:
        uid, options = super().client_options
        return uid, {**options, "made_into": self.made_into}

    def dereference(self) -> ServiceClientT:
        return cast("ServiceClientT", self.made_into(super().dereference()))


class CourierNode(RunnableNode["CourierHandle[T]"], Generic[T]):
    """A node that builds an object, serves its public methods, and calls its `run()` if it has one.

    `run()` may be an `async def`; it then runs on the event loop of the object's async methods. If the
    object has a `run()`, serving ends when it returns; if not, the node serves until the program stops.
    `run`, names that begin with an underscore, and properties are not served.

    Example:
        learner = program.add_node(lp.CourierNode(Learner, lr=0.1), label="learner")
        program.add_node(lp.CourierNode(Actor, learner), label="actor")   # in Actor: learner.step(batch)

    Args:
        constructor: A class, or a function that returns an object.
        courier_kwargs: Options of the server: `thread_pool_size`, `max_bytes`, `also_at`.
        courier_client_kwargs: Options of the clients that its handles turn into: `call_timeout` in seconds,
            `wait_for_ready`, `compress`, `max_bytes`.
        one_at_a_time: If True, calls run one at a time, in the thread that built the object. If the worker is
            a process, this is its main thread. Use it for objects bound to a thread, such as an sqlite
            connection, a GL or CUDA context, or `signal.alarm`. `thread_pool_size=1` does the same, except
            that if there is a `run()`, it keeps that thread, and calls run in another thread.

    Raises:
        DefinitionError: `one_at_a_time` is True, but the object has a `run()`, or methods that run in threads
            of their own (`async def` or batched ones). `add_node` raises this error.
    """

    _may_be_configured = True

    def __init__(
        self,
        constructor: Callable[..., T],
        /,
        *args: Any,
        courier_kwargs: Mapping[str, Any] | None = None,
        courier_client_kwargs: Mapping[str, Any] | None = None,
        one_at_a_time: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(constructor, *args, **kwargs)
        self._one_at_a_time = one_at_a_time or bool(getattr(constructor, ONE_AT_A_TIME, False))
        if isinstance(constructor, type):
            warn_of_shadowed_methods(constructor)
        self._server_kwargs = checked_server(courier_kwargs)
        self._client_kwargs = _checked_client(courier_client_kwargs, "courier_client_kwargs")
        self._address = self.allocate_address(Address("courier", kind=COURIER))

    def check_definition(self, *, is_final: bool = True) -> None:
        """Also check that a node with `one_at_a_time` can run one call at a time.

        Raises:
            DefinitionError: the node cannot do that, or another check failed.
        """
        super().check_definition(is_final=is_final)
        kind = self._code.function
        if self._one_at_a_time and isinstance(kind, type):
            why_not = why_not_one_at_a_time(kind, runs=self._runs)
            if why_not:
                raise DefinitionError(f"{self!r} cannot run one call at a time: {why_not}")

    def configure(self, *args: Any, **kwargs: Any) -> None:
        """Replace the constructor's arguments. Use this for nodes that hold handles of each other."""
        self._args = args
        self._kwargs = kwargs

    def create_handle(self) -> CourierHandle[T]:
        kind = self._code.function
        may_repeat = idempotent_methods(kind) if isinstance(kind, type) else ()
        return CourierHandle(self, self._address, self._client_kwargs, may_repeat)

    def to_executable(self) -> Executable:
        return ServeObject(
            self._code,
            self._args,
            self._kwargs,
            self._runs,
            self._address,
            self._server_kwargs,
            self._one_at_a_time,
        )


class Serving(Executable):
    """A base for executables that have a server. It stops the server at the end."""

    _server: Server | None = None

    def abandon(self) -> None:
        if self._server is not None:
            self._server.stop(0.0)

    def release(self) -> None:
        """End the calls first, so that no call uses something closed. Then release what the worker holds."""
        if self._server is not None:
            self._server.stop_serving()
        super().release()

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()


@dataclass
class ServeObject(BuildObject, Serving):
    """An executable that builds an object, serves it at an address, and runs it."""

    address: Address
    server_kwargs: Mapping[str, Any]
    one_at_a_time: bool = False
    _order: CallOrder | None = field(default=None, init=False)
    _one_thread: OneThread | None = field(default=None, init=False)

    def close(self) -> None:
        if self._one_thread is not None:
            self._one_thread.end()
        super().close()
        if self._order is not None:
            self._order.close()

    def open(self) -> Run | None:
        """Build the object, then serve it, so that no call reaches an object that is only half built."""
        me = context.current()
        with me.stop.interruption.forbidden():
            if self.one_at_a_time or self.server_kwargs.get("thread_pool_size") == 1:
                self._one_thread = OneThread()
            server = new_server(self.address, self.server_kwargs, self._one_thread)
            self._loop = server.event_loop
        # If the worker has several nodes, the current thread ends as soon as this node is open, so the object
        # needs a thread of its own.
        if self._one_thread is not None and me.part:
            self._start_thread(self._one_thread)
            built = self._one_thread.call(self.build, self._loop)
        else:
            built = self.build(self._loop)
        if self.one_at_a_time:
            why_not = why_not_one_at_a_time(type(built), runs=self.runs)
            if why_not:
                raise TypeError(f"{me.name} cannot run one call at a time: {why_not}")
        with context.current().stop.interruption.forbidden():
            server.bind_object(built)
            me = context.current()
            if me.addresses.ordering is not None:
                order = order_of(me.addresses.ordering, me.name + me.part, me.attempt)
                self._order = order
                for name, method in public_methods(built).items():
                    server.bind(name, order.wrapped(name, method))
            if not self.runs:
                run_method = getattr(built, "run", None)
                if callable(run_method):
                    server.bind("run", run_method)
            hook = getattr(built, "set_courier_server", None)
            if callable(hook):
                hook(server)
            start(server, self.address)
            self._server = server
        run = self.run_on(self._loop)
        if self._one_thread is not None and run is not None and not me.part:
            self._start_thread(self._one_thread)
        return run

    def serve(self, stop: threading.Event) -> None:
        """Serve until the stop.

        If calls run one at a time, run them in this thread, because it has built the object.
        """
        if self._one_thread is None or context.current().part:
            super().serve(stop)
            return
        context.current().stop.add_handler(self._end_turns)
        self._one_thread.run()

    def save_while_it_runs(self, built: object, loop: EventLoop) -> None:
        """Let the object save itself. If calls run one at a time, the save waits for its turn like a call."""
        if self._one_thread is None:
            super().save_while_it_runs(built, loop)
        else:
            self._one_thread.call(super().save_while_it_runs, built, loop)

    def _start_thread(self, one_thread: OneThread) -> None:
        """Start a thread for the calls, because the current thread has other things to do."""
        me = context.current()

        def run() -> None:
            with context.entered(me):
                one_thread.run()

        OwnThread(target=run, name=f"{me.name}-calls").start()

    def _end_turns(self) -> None:
        """Let no more calls run, and interrupt the running call unless it ends within a second."""
        one_thread = self._one_thread
        me = context.current()
        assert one_thread is not None
        one_thread.end()

        def interrupt_if_busy() -> None:
            if not one_thread.wait_until_it_has_returned(_GRACE_S):
                me.stop.interruption.request()

        OwnThread(target=interrupt_if_busy, name="launchpad-interrupt").start()

    def find_close(self, built: object) -> Callable[[], object] | None:
        """Return a function that closes the object, unless another node has called its closing method."""
        named_close = hooks.find_close(built)
        if named_close is None:
            return None
        name, close = named_close

        def close_unless_called() -> object:
            called_methods = {} if self._server is None else self._server.stats().methods
            return None if name in called_methods else close()

        return close_unless_called

    def save(self) -> None:
        """End the calls, so that no call changes the object any more, then let the object save itself."""
        self._end_calls()
        self._in_its_thread(super().save)

    def release(self) -> None:
        """End the calls, so that no call needs the object any more, then release what the object holds."""
        self._end_calls()
        self._in_its_thread(super().release)

    def _end_calls(self) -> None:
        """End other nodes' calls and the periodic saves. This worker itself can still use the one thread."""
        # Saves end first, because a save may be waiting for its turn in the one thread.
        if self._saves is not None:
            self._saves.end()
        if self._one_thread is not None:
            self._one_thread.refuse()
        if self._server is not None:
            self._server.stop_serving()

    def _in_its_thread(self, function: Callable[[], None]) -> None:
        """Call a function in the thread that built the object."""
        one_thread = self._one_thread
        if one_thread is None or one_thread.has_ended or not context.current().part:
            function()
        else:
            one_thread.call(function)


def why_not_one_at_a_time(kind: type, *, runs: bool) -> str:
    """Return the reason why objects of a class cannot run one call at a time, or "" if they can."""
    if runs and callable(getattr(kind, "run", None)):
        return (
            f"{kind.__qualname__}.run() would keep the thread that has built the object, in which they must"
            " run. Leave it out, call disable_run() of the node, or give the class a lock instead of"
            " one_at_a_time=True."
        )
    for name, method in served_methods(kind).items():
        if inspect.iscoroutinefunction(method):
            return (
                f"{kind.__qualname__}.{name} is an async def, which runs on an event loop, in another thread."
                " Make it a plain method, or leave out one_at_a_time=True."
            )
        if hasattr(type(method), "courier_promise"):
            return (
                f"{kind.__qualname__}.{name} is batched, and batches run in threads of their own. Leave out"
                " one_at_a_time=True: with its max_parallelism of 1, one batch runs at a time."
            )
    return ""


def new_server(
    address: Address,
    server_kwargs: Mapping[str, Any] = MappingProxyType({}),
    one_thread: OneThread | None = None,
) -> Server:
    """Make a server at the address. If there can be workers on other hosts, it also has a second address."""
    me = context.current()
    addresses = me.addresses
    also_at = [*server_kwargs.get("also_at", ())]
    if addresses.listens_at:
        also_at.append(addresses.listens_at)
    known_as = [addresses.known_as[address.name]] if address.name in addresses.known_as else []
    options = {**server_kwargs, "also_at": tuple(also_at), "known_as": known_as}
    return Server(me.name, address=address.resolve(), one_thread=one_thread, **options)


def start(server: Server, address: Address) -> None:
    """Start the server, and report its endpoints if the plan doesn't have them."""
    # The object may have started the server already, in set_courier_server.
    server.Start()
    me = context.current()
    # If servers can move, the launcher needs the endpoints to send them to the other workers.
    if me.addresses.listens_at:
        me.link.report(Bound(me.name, me.attempt, address.name, tuple(server.addresses)))


def checked_server(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of a server, or raise TypeError if one of them is unknown."""
    return _checked(kwargs, _SERVER_OPTIONS, "courier_kwargs")


def _checked_client(kwargs: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    """Return the options of a client, or raise TypeError if one of them is unknown.

    Also raise the ValueError or TypeError that a call would raise because of its timeout.
    """
    Options((kwargs or {}).get("call_timeout"))
    return _checked(kwargs, _CLIENT_OPTIONS, name)


def _checked(
    kwargs: Mapping[str, Any] | None, allowed: frozenset[str], name: str
) -> dict[str, Any]:
    """Return the options, or raise TypeError if one of them is unknown."""
    options = dict(kwargs or {})
    unknown = sorted(set(options) - allowed)
    if unknown:
        raise TypeError(f"unknown {name} {unknown}; there are {sorted(allowed)}")
    return options
