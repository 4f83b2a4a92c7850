"""Port: the server at which a rank receives messages. RankEdges: the messages that it sends and receives.

    rank 0 ──send──▶ call `put` ───▶ Port of rank 1 ──▶ mailbox ──▶ receive
           ──ask───▶ call `swap` ──▶ Port of rank 1 ──▶ mailbox ──▶ receive
           ◀──────── its answer ◀───────────────────◀── mailbox ◀── reply

A call of `put` returns when its message is in the mailbox. From then on, the sender may change the data. A
call of `swap` carries a message in each direction, and costs as much as one message. Between processes of one
host, arrays of 80 KiB and more go through shared memory.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from launchpad.address import Address
from launchpad.collectives.generation import Generation
from launchpad.collectives.host_memory import HostMemory, open_together
from launchpad.collectives.mailbox import COMPARE_S, Different, Gone, Key, Late, Mailbox
from launchpad.courier import Client, CourierError, close, fork
from launchpad.courier.client.client import count_call
from launchpad.courier.errors import DeadlineExceeded
from launchpad.courier.interruptions import Lock
from launchpad.errors import LaunchpadError, PeerFailed, Stopped
from launchpad.nodes.courier import CourierHandle
from launchpad.runtime import context

_MARGIN_S = 5.0
_LOOK_S = 0.2
_ASKED = 8
"""The largest number of absent ranks that a rank asks for their operation at a time."""

_REPLIES = 1 << 16
"""A number that is added to the step of a reply, to distinguish it from other messages."""


class Port:
    """The object that a worker serves to the other ranks. It stays the same over all generations."""

    def __init__(self) -> None:
        # If the first two messages of a generation arrive at once, they must get the same mailbox. If a
        # message of an earlier generation arrives late, it must not make the mailbox again that `open` has
        # dropped.
        self._lock = fork.free_in_child(Lock())
        self._mailboxes: dict[int, Mailbox] = {}
        self._generation: Generation | None = None

    def put(self, generation: int, key: Key, operation: str, data: Any) -> None:
        """Take a message from another rank. Raise PeerFailed if its generation is over here."""
        try:
            self._put(self.mailbox(generation), generation, key, operation, data)
        except Stopped:
            raise _stopping(generation) from None

    def swap(self, generation: int, key: Key, operation: str, data: Any, timeout_s: float) -> Any:
        """Take a message from another rank, wait for the reply, and return it."""
        mailbox = self.mailbox(generation)
        communicator, number, step, source = key
        try:
            self._put(mailbox, generation, key, operation, data)
            return mailbox.take((communicator, number, _REPLIES + step, -1 - source), timeout_s)
        except Stopped:
            raise _stopping(generation) from None

    def meet(self, generation: int, key: Key, operation: str, data: Any, timeout_s: float) -> Any:
        """Take a message for an operation in which all ranks send to this rank, and return the answer."""
        mailbox = self.mailbox(generation)
        try:
            return mailbox.meet(key, operation, data, timeout_s)
        except Different as different:
            raise self._mismatch(generation, different) from None
        except Stopped:
            raise _stopping(generation) from None

    def progress(self, generation: int, communicator: str) -> tuple[int, str]:
        """Return the number and the text of the operation that this rank began last."""
        return self.mailbox(generation).progress(communicator)

    def mailbox(self, generation: int) -> Mailbox:
        """Return the mailbox of a generation. The generation may not have begun here yet."""
        with self._lock:
            if self._generation is not None and generation < self._generation.number:
                raise PeerFailed(f"generation {generation} is over here", generation=generation)
            if generation not in self._mailboxes:
                mailbox = Mailbox()
                self._mailboxes[generation] = mailbox
                # Do this now, because another rank may wait here for an operation that never begins here.
                mailbox.end_at_stop()
            return self._mailboxes[generation]

    def open(self, generation: Generation) -> Mailbox:
        """Return the mailbox of a generation that begins here. Drop the mailboxes of earlier generations."""
        with self._lock:
            for number in [n for n in self._mailboxes if n < generation.number]:
                self._mailboxes.pop(number).forget_stop()
            self._generation = generation
        mailbox = self.mailbox(generation.number)
        generation.on_end(mailbox.end)
        generation.on_return(mailbox.note_returned)
        return mailbox

    def _put(self, mailbox: Mailbox, generation: int, key: Key, operation: str, data: Any) -> None:
        try:
            mailbox.put(key, operation, data)
        except Different as different:
            raise self._mismatch(generation, different) from None

    def _mismatch(self, generation: int, different: Different) -> Exception:
        now = self._generation
        is_now = now is not None and now.number == generation
        return now.mismatch(*different.args) if now is not None and is_now else different


def _stopping(generation: int) -> PeerFailed:
    """Return the error for a caller. It says that this worker, not the caller's, was asked to stop."""
    return PeerFailed("that rank is asked to stop", generation=generation)


class RankHandle(CourierHandle[Port]):
    """A handle of a rank's port. Inside a worker it turns into a RankPlace."""

    def dereference(self) -> RankPlace:  # type: ignore[override]
        return RankPlace(self._address)


class RankPlace:
    """The address of a rank's port, as seen from this worker."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def connect(self, failure_check: Callable[[], Exception | None]) -> Any:
        """Return a client that stops waiting once the check returns an error or the rank's worker ends."""
        place = self._address.place()

        def check() -> Exception | None:
            return failure_check() or place.failure_check()

        return Client(self._address.lookup(), name=place.worker, failure_check=check)


class RankEdges:
    """Messages between ranks of one generation, in a communicator of all ranks or of some of them.

    The caller must run one operation after the other.

    Args:
        ranks: The communicator's ranks, by their numbers in the generation.
    """

    def __init__(
        self,
        port: Port,
        places: list[RankPlace],
        generation: Generation,
        communicator: str = "",
        ranks: tuple[int, ...] | None = None,
        clients: dict[Any, Any] | None = None,
    ) -> None:
        self.generation = generation
        self._port = port
        self._places = places
        self._communicator = communicator
        self.ranks = tuple(range(len(generation.members))) if ranks is None else ranks
        self.rank = self.ranks.index(generation.rank)
        self._mailbox = port.open(generation) if ranks is None else port.mailbox(generation.number)
        # The clients without a timeout, by rank, and the clients with a timeout, by rank and timeout.
        self._clients = {} if clients is None else clients
        self._number = 0
        self._unsent: list[threading.Lock] = []
        # Python's own generator belongs to the user's function. If it is seeded, the function must get the
        # same numbers however long this rank waits for others.
        self._random = random.Random()
        self._operation = ""
        self._timeout_s = 0.0

    @property
    def size(self) -> int:
        return len(self.ranks)

    def part(self, name: str, ranks: tuple[int, ...]) -> RankEdges:
        """Return the edges between some of these ranks. Only those ranks may call it with this name."""
        communicator = f"{self._communicator}/{name}"
        members = tuple(self.ranks[rank] for rank in ranks)
        return RankEdges(
            self._port, self._places, self.generation, communicator, members, self._clients
        )

    def begin(self, operation: str, timeout_s: float) -> None:
        """Begin an operation. All messages until the next `begin` belong to it."""
        self.generation.check()
        self._number += 1
        self._operation = operation
        self._timeout_s = timeout_s
        try:
            self._mailbox.begin(self._communicator, self._number, operation)
        except Different as different:
            raise self.generation.mismatch(*different.args) from None

    def send(self, rank: int, step: int, data: Any) -> None:
        """Send data to a rank, and return once the data has arrived.

        Raises:
            PeerFailed: the generation is over, or the other rank does not answer.
            CollectiveMismatch: the other rank is in a different operation.
        """
        generation = self.generation
        key = self._communicator, self._number, step, generation.rank
        client = self._client(rank)
        try:
            client.put(generation.number, key, self._operation, data)
            return
        except (CourierError, LaunchpadError) as error:
            cause = error
        raise self._failed(rank, cause)

    def ask(self, rank: int, step: int, data: Any) -> Any:
        """Send data to a rank, and return the reply. This raises TimeoutError and the errors of `send`."""
        generation = self.generation
        key = self._communicator, self._number, step, generation.rank
        client = self._client(rank)
        limit_s = self._timeout_s
        try:
            return client.swap(generation.number, key, self._operation, data, limit_s)
        except (CourierError, LaunchpadError, Late) as error:
            cause = error
        raise self._failed(rank, cause)

    def meet(self, data: Any, answer: Callable[[list[Any]], Any]) -> Any:
        """Send data to rank 0, and return rank 0's answer, on all ranks.

        Rank 0 computes the answer by calling `answer` with the data of all ranks, by rank. The data may be
        changed afterwards, but the answer must not be changed.
        """
        generation = self.generation
        key = self._communicator, self._number, 0, generation.rank
        limit_s = self._timeout_s
        try:
            if self.rank:
                client = self._client(0)
                return client.meet(generation.number, key, self._operation, data, limit_s)
            return self._mailbox.meet(
                key, self._operation, data, limit_s, self.ranks, answer, self._different
            )
        except (Different, Gone, CourierError, LaunchpadError, Late) as error:
            cause = error
        raise self._failed(0, cause)

    def open_memory(self, row_bytes: int) -> HostMemory | None:
        """Open shared memory with rows for each rank. Return None, on all ranks, if one cannot open it."""
        # No interruption may come between opening a descriptor and the code that closes it.
        with context.current().stop.interruption.forbidden():
            return open_together(self._mailbox, self.ranks, self.rank, row_bytes, self.meet)

    def meet_in(self, memory: HostMemory, n_bytes: Sequence[int]) -> None:
        """Wait until all ranks have come here, and have written the data that the others will read.

        This raises the errors of `meet`. The statistics of the edges count it as calls of `share`.

        Args:
            n_bytes: For each rank, the number of bytes of this rank's data that it will read.
        """
        number = self._number
        operation = self._operation
        began = time.monotonic()
        try:
            memory.announce(number, operation)
            while True:
                absent = memory.wait(number, operation, min(self._timeout_s, COMPARE_S))
                if not absent:
                    break
                if time.monotonic() > began + self._timeout_s:
                    raise Late
                different = self._different(absent)
                # A rank may have come here, and have gone on to the next operation before it was asked. In
                # this case its announcement is here by now, so look again.
                if different is not None and different.rank in memory.wait(number, operation, 0):
                    raise different
        except (Different, Gone, CourierError, LaunchpadError, Late) as error:
            cause = error
        else:
            took_s = time.monotonic() - began
            for rank in range(self.size):
                if rank != self.rank:
                    count_call(self._client(rank), "share", took_s, n_bytes[rank])
            return
        raise self._failed(0, cause)

    def receive(self, rank: int, step: int) -> Any:
        """Wait for the data that a rank passes to `send` or `ask`, and return it.

        Raises:
            PeerFailed: the generation is over, or the other rank has returned.
            CollectiveMismatch: the other rank is in a different operation.
            TimeoutError: the data did not come in time.
        """
        key = self._communicator, self._number, step, self.ranks[rank]
        try:
            return self._mailbox.take(key, self._timeout_s, self._different)
        except (Different, Gone, Late, LaunchpadError) as error:
            cause = error
        raise self._failed(rank, cause)

    def reply(self, rank: int, step: int, data: Any) -> None:
        """Reply to a rank that asks in this step. The data must not be changed before `finish` returns."""
        key = self._communicator, self._number, _REPLIES + step, -1 - self.ranks[rank]
        if hasattr(data, "__array__"):
            # The server's thread has the only reference to this view, and drops it when the view is sent.
            data = data[...]
            is_sent = Lock()
            is_sent.acquire()
            weakref.finalize(data, is_sent.release).atexit = False
            self._unsent.append(is_sent)
        self._mailbox.put(key, self._operation, data)

    def swap_with_all(self, parts: Sequence[Any], step: int) -> list[Any]:
        """Send each rank its part, and return the parts from all ranks, by rank.

        Of each two ranks, the lower one asks, and the other replies. The parts must not be changed before
        `finish` returns.
        """
        received = list(parts)
        for rank in range(self.rank):
            self.reply(rank, step, parts[rank])
        for rank in range(self.rank + 1, self.size):
            received[rank] = self.ask(rank, step, parts[rank])
        for rank in range(self.rank):
            received[rank] = self.receive(rank, step)
        return received

    def finish(self) -> None:
        """Wait until all replies of this rank are sent. From then on, the data in them may be changed."""
        unsent = self._unsent
        self._unsent = []
        for is_sent in unsent:
            while not is_sent.acquire(timeout=_LOOK_S):
                self.generation.check()

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            close(client)
        self._clients.clear()

    def _client(self, rank: int) -> Any:
        key = self.ranks[rank], self._timeout_s
        client = self._clients.get(key)
        if client is None:
            generation = self.generation
            first = self._clients.get(self.ranks[rank])
            if first is None:
                place = self._places[generation.members[self.ranks[rank]].replica]
                first = place.connect(lambda: generation.error)
                self._clients[self.ranks[rank]] = first
            client = first.with_options(timeout_s=self._timeout_s + _MARGIN_S)
            self._clients[key] = client
        return client

    def _different(self, ranks: Sequence[int]) -> Different | None:
        """Ask absent ranks for their current operation. Return the first difference, or None.

        A rank that is at a later operation must have done something else instead of this one. If a rank does
        not answer, that is no difference: if the rank is lost, the generation ends.
        """
        for rank in self._random.sample(ranks, min(len(ranks), _ASKED)):
            number, operation = self._progress(self.ranks.index(rank), COMPARE_S)
            is_other = number == self._number and operation != self._operation
            if number > self._number or is_other:
                return Different(self._operation, rank, operation)
        return None

    def _progress(self, rank: int, timeout_s: float) -> tuple[int, str]:
        """Return the number and the text of a rank's latest operation.

        Return (0, "") if the rank does not answer in time.
        """
        with contextlib.suppress(CourierError, LaunchpadError):
            client = self._client(rank).with_options(timeout_s=timeout_s)
            number, operation = client.progress(self.generation.number, self._communicator)
            return number, operation
        return 0, ""

    def _failed(self, rank: int, error: Exception) -> Exception:
        """Return the error to raise for a call or a wait that has failed."""
        generation = self.generation
        if generation.error is not None:
            return generation.error
        if isinstance(error, Different):
            return generation.mismatch(*error.args)
        if isinstance(error, Late | DeadlineExceeded):
            return self._late()
        if isinstance(error, Gone):
            me = generation.name_of(generation.rank)
            return generation.missed(error.args[0], f"while {me} waits for it in {self._operation}")
        return self.generation.failed_call(self.ranks[rank], error)

    def _late(self) -> Exception:
        """Return the error to raise when the time is up. To name absent ranks, ask all for their progress."""
        generation = self.generation
        absent = []
        for rank, member in enumerate(self.ranks):
            if rank == self.rank:
                continue
            number, operation = self._progress(rank, _MARGIN_S)
            if number == self._number and operation != self._operation:
                return generation.error or generation.mismatch(self._operation, member, operation)
            if number < self._number:
                absent.append(generation.name_of(member))
        return generation.error or generation.late(
            f"{generation.name_of(generation.rank)} waited in {self._operation} for {self._timeout_s:g} s;"
            f" absent: {', '.join(absent) or 'none: the others have come only now'}"
        )
