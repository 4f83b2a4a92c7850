"""Participation: how a worker takes part in the collective of its group, over all of its generations.

open ──▶ join ──▶ (its function or object runs) ──▶ leave ──▶ close
           ▲                                          │
           └──── elastic: another rank is lost ◀──────┘
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from launchpad.address import Address
from launchpad.collectives.attendance import STOPPED, Attendance
from launchpad.collectives.collective import Collective
from launchpad.collectives.generation import Generation
from launchpad.collectives.port import Port, RankEdges
from launchpad.courier import Server, close
from launchpad.errors import PeerFailed, Stopped
from launchpad.nodes.courier import new_server, start
from launchpad.runtime import context

if TYPE_CHECKING:
    from launchpad.collectives.operations import Operations


@dataclass
class End:
    """How the work of one generation has ended in this rank."""

    result: Any = None
    goes_on: bool = False


@dataclass
class Participation:
    """One worker's. Sent to it as data.

    Attributes:
        address: Of its port.
        places: Where the ports of the others are, by replica; in the launcher, their handles.
        rendezvous: A client of it; in the launcher, its handle.
        label: The group.
        backend: `courier`, `gloo` or `nccl`.
        timeout_s: For an operation.
    """

    address: Address
    places: list[Any]
    rendezvous: Any
    label: str
    backend: str
    timeout_s: float
    _port: Port = field(init=False, repr=False)
    _server: Server | None = field(init=False, default=None, repr=False)
    _attendance: Attendance | None = field(init=False, default=None, repr=False)
    _group: Collective | None = field(init=False, default=None, repr=False)

    def open(self) -> None:
        """Serves the port, before others know of this rank."""
        with context.current().stop.interruption.forbidden():
            self._port = Port()
            self._server = new_server(self.address)
            self._server.bind_object(self._port)
            start(self._server, self.address)

    def join(self) -> Collective | None:
        """The collective of the next generation, once all have come; None if the others are done for good.

        Raises:
            TimeoutError: others have not come.
            Stopped: the program stops.
        """
        replica = next(i for i, place in enumerate(self.places) if place is None)
        while True:
            before, group = self._attendance, self._group
            attendance = self._attendance = Attendance(self.rendezvous, replica, self.label)
            try:
                if group is not None:
                    group.close()
                self._group = None
                generation = attendance.wait_formed(self.timeout_s)
            finally:  # the rendezvous has put the new one in its place; earlier, this rank would be lost
                if before is not None:
                    before.abandon()
            if generation is None:
                return None
            try:
                operations = self._operations(generation)
            except PeerFailed:  # it has ended while its ranks connected
                if not self._goes_on():
                    raise
                continue
            ranks = tuple(range(len(generation.members)))
            self._group = Collective(generation, operations, ranks, self.timeout_s, self.rendezvous)
            return self._group

    @contextlib.contextmanager
    def ends(self) -> Iterator[End]:
        """What runs in here is this rank's work in the generation: leaves it afterwards, and says why.

        An error that ends the generation is not raised where the group goes on with fewer, or again with all.
        """
        me, end = context.current(), End()
        assert self._group is not None
        try:
            with self._group._translating_errors():
                yield end
        except PeerFailed as error:
            end.goes_on = self._goes_on()
            if not end.goes_on:
                self._leave(f"has left, since {error}", has_raised=True)
                raise
        except Stopped:
            self._leave(STOPPED, has_raised=True)
            raise
        except BaseException as error:
            kind = type(error).__name__
            why = STOPPED if me.stop.event.is_set() else f"has failed: {kind}: {error}"
            self._leave(why, has_raised=True)
            raise
        else:
            is_stopped = me.stop.event.is_set()
            self._leave(STOPPED if is_stopped else "has returned", has_returned=not is_stopped)

    def abandon(self) -> None:
        """Ends at once, as if it had died."""
        if self._attendance is not None:
            self._attendance.abandon()
        if self._server is not None:
            self._server.stop(0.0)

    def close(self) -> None:
        """Leaves, and serves no more."""
        self._leave(STOPPED if context.current().stop.event.is_set() else "has ended")
        close(self.rendezvous)
        if self._server is not None:
            self._server.stop()

    def _goes_on(self) -> bool:
        """Whether this rank takes part in the next generation when another one is lost."""
        me = context.current()
        return me.link.policy.min_replicas is not None and not me.stop.event.is_set()

    def _operations(self, generation: Generation) -> Operations:
        if self.backend != "courier":
            from launchpad.collectives.torch_operations import TorchOperations
            from launchpad.collectives.torch_store import TorchStores

            stores = TorchStores(self.rendezvous, generation)
            ranks = tuple(range(len(generation.members)))
            return TorchOperations(self.backend, stores, generation, ranks, self.timeout_s)
        from launchpad.collectives.courier_operations import CourierOperations

        return CourierOperations(RankEdges(self._port, self.places, generation), self.timeout_s)

    def _leave(self, why: str, *, has_returned: bool = False, has_raised: bool = False) -> None:
        """The second time does nothing."""
        with context.current().stop.interruption.forbidden():
            if self._attendance is not None:
                self._attendance.leave(why, has_returned=has_returned)
            if (group := self._group) is not None:
                self._group = None
                try:
                    group.close(has_raised=has_raised)
                except Exception:
                    if not has_raised:
                        raise
                    traceback.print_exc()  # what was raised first goes on
