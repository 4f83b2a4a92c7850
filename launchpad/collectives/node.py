"""CollectiveNode: a replica in a group that computes together, with a rank."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, cast

from launchpad.address import COURIER, Address
from launchpad.collectives.participation import Participation
from launchpad.collectives.port import RankHandle
from launchpad.collectives.rendezvous import RendezvousNode
from launchpad.courier.checks import is_number
from launchpad.courier.client.client import T
from launchpad.courier.server.decorators import idempotent_methods
from launchpad.courier.server.event_loop import EventLoop
from launchpad.errors import DefinitionError
from launchpad.handle import Handle
from launchpad.nodes.base import Node
from launchpad.nodes.courier import CourierHandle, ServeObject
from launchpad.nodes.python import Calling, PyHandle, RunnableNode
from launchpad.runtime import context, user_code
from launchpad.runtime.executable import Executable, Run

BACKENDS = ("courier", "gloo", "nccl")
TIMEOUT_S = 600.0


class CollectiveNode(RunnableNode["Handle[Any]"], Generic[T]):
    """A function or an object that computes together with the other replicas of its group.

    The first argument of the function or class is an `lp.Collective`, which has this replica's rank and the
    operations (all-reduce, broadcast, barrier, …).

    Example:
        def train(group: lp.Collective, steps):
          for step in range(steps):
            gradient = group.all_reduce(gradient_of(batch(step, group.rank)), op="mean")

        with program.group("trainer", restart=lp.RestartPolicy(scope="group")):
          for _ in range(4):
            program.add_node(lp.CollectiveNode(train, steps=1000))

    When all replicas have come, the function is called. If it is a class, an object is made instead: its
    public methods are served like those of a `CourierNode`, and its `run()` is called if it has one.

    If a rank dies, the others raise `lp.PeerFailed`. With `RestartPolicy(scope="group")`, all replicas
    restart as the next generation. With `RestartPolicy(min_replicas=k)`, the remaining replicas go on.

    Args:
        function: A function or a class.
        backend: `courier` uses the edges of the graph; `gloo` and `nccl` use torch.distributed.
        timeout_s: How long an operation may wait for the other ranks, and how long a new generation may wait
            until all of them have come.

    Raises:
        DefinitionError: there is no such backend, or `timeout_s` is not more than 0.
    """

    def __init__(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        backend: str = "courier",
        timeout_s: float = TIMEOUT_S,
        **kwargs: Any,
    ) -> None:
        super().__init__(function, *args, **kwargs)
        if backend not in BACKENDS:
            raise DefinitionError(f"backend={backend!r}: expected one of {', '.join(BACKENDS)}")
        if not (is_number(timeout_s) and timeout_s > 0):
            raise DefinitionError(f"timeout_s={timeout_s!r}: expected seconds, more than 0")
        self._backend = backend
        self._timeout_s = timeout_s
        self._is_class = isinstance(function, type)
        self._port_address = self.allocate_address(Address("collective", kind=COURIER))
        self._port = RankHandle(self, self._port_address)
        self._ranks: list[CollectiveNode[Any]] = [self]
        self._label = ""
        self._rendezvous: CourierHandle[Any] | None = None
        if self._is_class:
            self._address = self.allocate_address(Address("courier", kind=COURIER))

    def joined(
        self,
        label: str,
        siblings: Sequence[Node[Any]],
        add_worker: Callable[[Node[Any], str], Handle[Any]],
    ) -> None:
        """Add this node to the ranks of its group. The group's first node also adds the rendezvous.

        Raises:
            DefinitionError: the other nodes of the group have another backend.
        """
        self._label = label
        first = next((node for node in siblings if isinstance(node, CollectiveNode)), None)
        if first is None:
            node = RendezvousNode(self._ranks)
            self._rendezvous = cast("CourierHandle[Any]", add_worker(node, f"{label}.rendezvous"))
            return
        if first._backend != self._backend:
            raise DefinitionError(
                f"{self!r} has backend={self._backend!r}, and {first!r} of the same group"
                f" {first._backend!r}: ranks of one collective have one"
            )
        self._ranks = first._ranks
        self._rendezvous = first._rendezvous
        self._ranks.append(self)

    def check_definition(self, *, is_final: bool = True) -> None:
        """Check that the function takes the collective as its first argument, and is not a generator."""
        function = self._code.function
        if self._is_class:
            user_code.check_run(repr(self), function, is_needed=False)
        else:
            user_code.check_function(repr(self), function)
        user_code.check_arguments(repr(self), function, ("group", *self._args), self._kwargs)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments, the ports of the other ranks, and the rendezvous: all of them are edges."""
        peers = [node._port for node in self._ranks if node is not self]
        return {**super().arguments(), "peers": peers, "rendezvous": self._rendezvous}

    def create_handle(self) -> Handle[Any]:
        if not self._is_class:
            return PyHandle(self)
        return CourierHandle(
            self, self._address, idempotent=idempotent_methods(cast(type, self._code.function))
        )

    def to_executable(self) -> Executable:
        participation = Participation(
            self._port_address,
            [None if node is self else node._port for node in self._ranks],
            self._rendezvous,
            self._label,
            self._backend,
            self._timeout_s,
        )
        if self._is_class:
            return ServeRank(
                self._code,
                self._args,
                self._kwargs,
                self._runs,
                self._address,
                {},
                participation=participation,
            )
        return RunRank(self._code, self._args, self._kwargs, participation=participation)


@dataclass
class RunRank(Calling):
    """An executable that calls a function once in each generation, until no generation follows."""

    participation: Participation = field(kw_only=True)

    def open(self) -> Run:
        self._loop = EventLoop(context.current().name)
        self.participation.open()
        return self._run

    def _run(self) -> Any:
        assert self._loop is not None
        while True:
            group = self.participation.join()
            if group is None:
                return None
            call = functools.partial(self.function, group, *self.args, **self.kwargs)
            with self.participation.ends() as end:
                end.result = user_code.until_done(call, self._loop)()
            if not end.goes_on:
                return end.result

    def abandon(self) -> None:
        self.participation.abandon()

    def close(self) -> None:
        self.participation.close()
        super().close()


@dataclass
class ServeRank(ServeObject):
    """An executable that builds an object in the first generation, serves it, and runs it."""

    participation: Participation = field(kw_only=True)

    def open(self) -> Run | None:
        self.participation.open()
        own_args = self.args
        group = self.participation.join()
        if group is None:
            return lambda: None
        self.args = group, *own_args
        run = super().open()
        self.args = own_args
        return None if run is None else functools.partial(self._run, run)

    def _run(self, run: Run) -> Any:
        while True:
            with self.participation.ends() as end:
                end.result = run()
            if not end.goes_on:
                return end.result
            group = self.participation.join()
            if group is None:
                return None
            run = functools.partial(self._run_another, group)

    def _run_another(self, group: Any) -> Any:
        """Build the object of the next generation, serve it instead of the last one, and run it."""
        self._built = self.function(group, *self.args, **self.kwargs)
        assert self._server is not None
        assert self._loop is not None
        self._server.bind_object(self._built)
        run = self.run_on(self._loop)
        return None if run is None else run()

    def abandon(self) -> None:
        self.participation.abandon()
        super().abandon()

    def close(self) -> None:
        self.participation.close()
        super().close()
