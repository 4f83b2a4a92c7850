"""Port: where a rank receives what other ranks send it, and RankEdges: what it sends and receives.

    rank 0 ──send──▶ call `put` ───▶ Port of rank 1 ──▶ mailbox ──▶ receive
           ──ask───▶ call `swap` ──▶ Port of rank 1 ──▶ mailbox ──▶ receive
           ◀──────── its answer ◀───────────────────◀── mailbox ◀── reply

A call of `put` returns when its message is in the mailbox: the sender may then change what it has sent.
One of `swap` carries a message in each direction, for the price of one. Arrays of 80 KiB and more go through
shared memory between processes of one host.
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
"""How many of the absent ones a rank asks at a time."""

_REPLIES = 1 << 16
"""Added to the step of a message that is a reply."""


class Port:
    """The served object of one worker; it stays over generations."""

    def __init__(self) -> None:
        self._lock = fork.free_in_child(Lock())
        self._mailboxes: dict[int, Mailbox] = {}
        self._generation: Generation | None = None

    def put(self, generation: int, key: Key, operation: str, data: Any) -> None:
        """A message of another rank. One of a generation that is over here is refused."""
        try:
            self._put(self.mailbox(generation), generation, key, operation, data)
        except Stopped:
            raise _stopping(generation) from None

    def swap(self, generation: int, key: Key, operation: str, data: Any, timeout_s: float) -> Any:
        """The same; returns the reply, once there is one."""
        mailbox = self.mailbox(generation)
        communicator, number, step, source = key
        try:
            self._put(mailbox, generation, key, operation, data)
            return mailbox.take((communicator, number, _REPLIES + step, -1 - source), timeout_s)
        except Stopped:
            raise _stopping(generation) from None

    def meet(self, generation: int, key: Key, operation: str, data: Any, timeout_s: float) -> Any:
        """A message of another rank for an operation that all send to this one; returns the answer."""
        mailbox = self.mailbox(generation)
        try:
            return mailbox.meet(key, operation, data, timeout_s)
        except Different as different:
            raise self._mismatch(generation, different) from None
        except Stopped:
            raise _stopping(generation) from None

    def progress(self, generation: int, communicator: str) -> tuple[int, str]:
        """The number of the operation that this rank has begun last, and which it is."""
        return self.mailbox(generation).progress(communicator)

    def mailbox(self, generation: int) -> Mailbox:
        """That of a generation, which may not have begun here yet."""
        with self._lock:
            if self._generation is not None and generation < self._generation.number:
                raise PeerFailed(f"generation {generation} is over here", generation=generation)
            if generation not in self._mailboxes:
                mailbox = self._mailboxes[generation] = Mailbox()
                mailbox.end_at_stop()  # now: another rank may wait in it for one that never begins here
            return self._mailboxes[generation]

    def open(self, generation: Generation) -> Mailbox:
        """That of the generation which begins here; what is left of earlier ones is dropped."""
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
    """For the caller: it is this worker that is asked to stop, not that of the caller."""
    return PeerFailed("that rank is asked to stop", generation=generation)


class RankHandle(CourierHandle[Port]):
    """Stands for the port of a rank; in a worker it turns into its place."""

    def dereference(self) -> RankPlace:  # type: ignore[override]
        return RankPlace(self._address)


class RankPlace:
    """Where the port of a rank is, as this worker sees it."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def connect(self, failure_check: Callable[[], Exception | None]) -> Any:
        """A client that gives up waiting when the check says so, or the worker has ended."""
        place = self._address.place()

        def check() -> Exception | None:
            return failure_check() or place.failure_check()

        return Client(self._address.lookup(), name=place.worker, failure_check=check)


class RankEdges:
    """Messages between the ranks of one generation, in one communicator: all of them, or a part.

    One operation after another; the caller sees to that.

    Args:
        ranks: The communicator's, as ranks of the generation.
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
        self._port, self._places, self._communicator = port, places, communicator
        self.ranks = tuple(range(len(generation.members))) if ranks is None else ranks
        self.rank = self.ranks.index(generation.rank)
        self._mailbox = port.open(generation) if ranks is None else port.mailbox(generation.number)
        # By rank; and, with a limit of time, by both.
        self._clients = {} if clients is None else clients
        self._number = 0
        self._unsent: list[threading.Lock] = []
        self._operation = ""
        self._timeout_s = 0.0

    @property
    def size(self) -> int:
        return len(self.ranks)

    def part(self, name: str, ranks: tuple[int, ...]) -> RankEdges:
        """The same for a part of these ranks; `name` is the same in all of them, and in no others."""
        communicator = f"{self._communicator}/{name}"
        members = tuple(self.ranks[rank] for rank in ranks)
        return RankEdges(
            self._port, self._places, self.generation, communicator, members, self._clients
        )

    def begin(self, operation: str, timeout_s: float) -> None:
        """An operation begins; what it sends and receives belongs to it."""
        self.generation.check()
        self._number += 1
        self._operation, self._timeout_s = operation, timeout_s
        try:
            self._mailbox.begin(self._communicator, self._number, operation)
        except Different as different:
            raise self.generation.mismatch(*different.args) from None

    def send(self, rank: int, step: int, data: Any) -> None:
        """Returns when it has arrived.

        Raises:
            PeerFailed: the generation is over, or that rank does not answer.
            CollectiveMismatch: that rank does something else.
        """
        generation = self.generation
        key = self._communicator, self._number, step, generation.rank
        client = self._client(rank)
        try:
            client.put(generation.number, key, self._operation, data)
            return
        except (CourierError, LaunchpadError) as error:
            failed = error
        raise self._failed(rank, failed)

    def ask(self, rank: int, step: int, data: Any) -> Any:
        """Sends, and returns the reply; raises as `send` does, and TimeoutError."""
        generation = self.generation
        key = self._communicator, self._number, step, generation.rank
        client, limit_s = self._client(rank), self._timeout_s
        try:
            return client.swap(generation.number, key, self._operation, data, limit_s)
        except (CourierError, LaunchpadError, Late) as error:
            failed = error
        raise self._failed(rank, failed)

    def meet(self, data: Any, answer: Callable[[list[Any]], Any]) -> Any:
        """What rank 0 answers, in all ranks: `answer` of what all have given, by rank.

        The answer must not be changed; what has been given may be.
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
            failed = error
        raise self._failed(0, failed)

    def open_memory(self, row_bytes: int) -> HostMemory | None:
        """A row for each rank and the means to wake them; None, for all, if they are not on one host."""
        with (
            context.current().stop.interruption.forbidden()
        ):  # between a descriptor and what closes it
            return open_together(self._mailbox, self.ranks, self.rank, row_bytes, self.meet)

    def meet_in(self, memory: HostMemory, n_bytes: Sequence[int]) -> None:
        """Returns when all have come here, and have written what the others now read.

        Raises as `meet` does. Edges count it as calls of `share`.

        Args:
            n_bytes: How many each rank now reads of what this one has written.
        """
        number = self._number
        operation = self._operation
        began = time.monotonic()
        try:
            memory.announce(number, operation)
            while absent := memory.wait(number, operation, min(self._timeout_s, COMPARE_S)):
                if time.monotonic() > began + self._timeout_s:
                    raise Late
                different = self._different(absent)
                # What a rank announced before it went on to something else is here by now.
                if different is not None and different.rank in memory.wait(number, operation, 0):
                    raise different
        except (Different, Gone, CourierError, LaunchpadError, Late) as error:
            failed = error
        else:
            took_s = time.monotonic() - began
            for rank in range(self.size):
                if rank != self.rank:
                    count_call(self._client(rank), "share", took_s, n_bytes[rank])
            return
        raise self._failed(0, failed)

    def receive(self, rank: int, step: int) -> Any:
        """What that rank has sent, or asks with, once it has come.

        Raises:
            PeerFailed: the generation is over, or that rank has returned.
            CollectiveMismatch: that rank does something else.
            TimeoutError: it did not come in time.
        """
        key = self._communicator, self._number, step, self.ranks[rank]
        try:
            return self._mailbox.take(key, self._timeout_s, self._different)
        except (Different, Gone, Late, LaunchpadError) as error:
            failed = error
        raise self._failed(rank, failed)

    def reply(self, rank: int, step: int, data: Any) -> None:
        """Answers what that rank asks in this step. The data must not be changed before `finish` returns."""
        key = self._communicator, self._number, _REPLIES + step, -1 - self.ranks[rank]
        if hasattr(data, "__array__"):
            # The server's thread has the only reference to this view, and drops it when it has sent it.
            data = data[...]
            is_sent = Lock()
            is_sent.acquire()
            weakref.finalize(data, is_sent.release).atexit = False
            self._unsent.append(is_sent)
        self._mailbox.put(key, self._operation, data)

    def swap_with_all(self, parts: Sequence[Any], step: int) -> list[Any]:
        """Sends each rank its part; what each has sent, by rank. Of two ranks the lower one asks.

        The parts must not be changed before `finish` returns.
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
        """Returns when what this rank has replied was sent: it may be changed from then on."""
        unsent, self._unsent = self._unsent, []
        for is_sent in unsent:
            while not is_sent.acquire(timeout=_LOOK_S):
                self.generation.check()

    def close(self) -> None:
        """Closes the connections."""
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
            client = self._clients[key] = first.with_options(timeout_s=self._timeout_s + _MARGIN_S)
        return client

    def _different(self, ranks: Sequence[int]) -> Different | None:
        """Ask ranks of the generation that have not come what they do; return what is different, if any is.

        A rank that goes on beyond this operation has done something else in its place. One that does not
        answer says nothing: if it is lost, the generation ends.
        """
        for rank in random.sample(ranks, min(len(ranks), _ASKED)):
            number, operation = self._progress(self.ranks.index(rank), COMPARE_S)
            is_other = number == self._number and operation != self._operation
            if number > self._number or is_other:
                return Different(self._operation, rank, operation)
        return None

    def _progress(self, rank: int, timeout_s: float) -> tuple[int, str]:
        """Return number and text of what a rank has begun last; (0, "") if it does not answer in time."""
        with contextlib.suppress(CourierError, LaunchpadError):
            client = self._client(rank).with_options(timeout_s=timeout_s)
            number, operation = client.progress(self.generation.number, self._communicator)
            return number, operation
        return 0, ""

    def _failed(self, rank: int, error: Exception) -> Exception:
        """What to raise for a call, or a wait, that has failed."""
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
        """What to raise when the time is up. Asks the others how far they are."""
        generation, absent = self.generation, []
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
