"""Participation: a worker's part in the collective of its group, over all generations.

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
    """The end of this rank's work in one generation: its result, unless the rank goes on to the next one."""

    result: Any = None
    goes_on: bool = False


@dataclass
class Participation:
    """The participation of one worker, sent to it as data.

    Attributes:
        address: The address of the worker's port.
        places: The places of the other ranks' ports, by replica. In the launcher, these are their handles.
        rendezvous: A client of the rendezvous. In the launcher, this is its handle.
        label: The label of the group.
        backend: `courier`, `gloo` or `nccl`.
        timeout_s: How long an operation may wait.
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
        """Serve the port. This must be done before the other ranks know of this rank."""
        with context.current().stop.interruption.forbidden():
            self._port = Port()
            self._server = new_server(self.address)
            self._server.bind_object(self._port)
            start(self._server, self.address)

    def join(self) -> Collective | None:
        """Wait for the next generation, and return its collective.

        Return None if there will be no other generation, because the other ranks have returned.

        Raises:
            TimeoutError: other ranks have not come.
            Stopped: the program stops.
        """
        replica = next(i for i, place in enumerate(self.places) if place is None)
        while True:
            before = self._attendance
            group = self._group
            attendance = Attendance(self.rendezvous, replica, self.label)
            self._attendance = attendance
            try:
                if group is not None:
                    group.close()
                self._group = None
                generation = attendance.wait_formed(self.timeout_s)
            finally:
                # Do this only after the rendezvous has replaced the earlier session by the new one. If the
                # earlier session ended before that, this rank would count as lost.
                if before is not None:
                    before.abandon()
            if generation is None:
                return None
            try:
                operations = self._operations(generation)
            except PeerFailed:
                # The generation ended while its ranks connected.
                if not self._goes_on():
                    raise
                continue
            ranks = tuple(range(len(generation.members)))
            self._group = Collective(generation, operations, ranks, self.timeout_s, self.rendezvous)
            return self._group

    @contextlib.contextmanager
    def ends(self) -> Iterator[End]:
        """Run a block with this rank's work in a generation. At its end, leave the generation with a reason.

        If an error ends the generation, but the group goes on with fewer ranks or with all ranks again, the
        error is not raised.
        """
        me = context.current()
        end = End()
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
        """End at once, as if this worker had died."""
        if self._attendance is not None:
            self._attendance.abandon()
        if self._server is not None:
            self._server.stop(0.0)

    def close(self) -> None:
        """Leave the generation, and stop serving the port."""
        self._leave(STOPPED if context.current().stop.event.is_set() else "has ended")
        close(self.rendezvous)
        if self._server is not None:
            self._server.stop()

    def _goes_on(self) -> bool:
        """Return True if this rank takes part in the next generation after another rank was lost."""
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
        """Leave the generation, and close its collective. A second call does nothing."""
        with context.current().stop.interruption.forbidden():
            if self._attendance is not None:
                self._attendance.leave(why, has_returned=has_returned)
            group = self._group
            if group is not None:
                self._group = None
                try:
                    group.close(has_raised=has_raised)
                except Exception:
                    if not has_raised:
                        raise
                    # Only print this error, because the first one must be raised.
                    traceback.print_exc()
