"""The host: one small process with one thread, which forks the workers and sees them die.

    launcher ══ lifeline, commands, reports ══ host ══ a channel each ══ workers

It has imported what every worker needs, so that a worker is a fork and no boot. It is the workers' parent,
so the kernel tells it how each ended. It lives for as long as the launcher does: when the lifeline ends,
or the launcher's process, it kills every worker's process group, removes the run's sockets and goes.
Should it be killed itself, the `keeper` above it does that.

One loop, `run`; nothing in it waits but `select`. What happens after a fork is in `child`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from launchpad.launch.backends.processes import briefing, child, keeper, kernel
from launchpad.launch.backends.processes.briefing import Briefing
from launchpad.launch.backends.processes.channel import Channel
from launchpad.launch.backends.processes.child import Birth
from launchpad.launch.backends.processes.messages import (
    Ask,
    Bye,
    Dump,
    Forked,
    Gone,
    Hello,
    Kill,
    NotForked,
    Over,
    Placed,
    Said,
    Start,
)
from launchpad.launch.backends.processes.out_of_memory import OutOfMemory

_LAST_WORDS_S, _LAST_WORDS_BY_S = 0.05, 1.0
"""How long a worker that is to be killed has for writing its stacks into its log; and if it has had no
processor meanwhile."""


@dataclass(eq=False)
class Member:
    """A worker that lives."""

    worker: str
    mark: str
    pid: int
    channel: Channel
    dies_at: float | None = None
    dies_by: float = 0.0


class Newborn(BaseException):
    """Raised in the copy that a fork makes: it leaves the host's frames, which are no part of its stack."""

    def __init__(self, birth: Birth, given: Briefing, open_files: kernel.OpenFiles) -> None:
        super().__init__(birth.worker)
        self.inheritance = birth, given, open_files


class Host:
    """The loop and what it knows.

    Args:
      lifeline: The connection to the launcher.
      file: The briefing.
      death: A descriptor that becomes readable when the launcher's process ends, if there are such.
    """

    def __init__(self, lifeline: int, file: int, death: int | None) -> None:
        self._file = file
        self._index_length = 0
        self._briefing: Briefing | None = None
        self._members: dict[str, Member] = {}
        self._open_files = kernel.raise_open_files()
        self._is_over = self._said_bye = False
        self._memory = OutOfMemory()
        self._selector = selectors.PollSelector()
        self._launcher = Channel(lifeline, self._selector, self._obey)
        self._alarm = kernel.deaths_of_children()
        self._selector.register(self._alarm, selectors.EVENT_READ, self._on_alarm)
        if death is not None:
            self._selector.register(death, selectors.EVENT_READ, self._end)
        self._do: dict[type, Callable[[Any], None]] = {
            Hello: self._on_hello,
            Start: self._on_start,
            Ask: self._on_ask,
            Dump: self._on_dump,
            Kill: self._on_kill,
            Over: self._tell_all,
            Placed: self._tell_all,
            Bye: self._on_bye,
        }

    def run(self) -> bool:
        """Serves the launcher until it is gone; whether it said good-bye."""
        while not self._is_over and self._launcher.is_open:
            self._turn()
        self._end_all()
        self._launcher.finish()
        return self._said_bye

    def _turn(self) -> None:
        for key, events in self._selector.select(self._patience_s()):
            key.data(events)
        self._kill_due()

    def _patience_s(self) -> float | None:
        due = [member.dies_at for member in self._members.values() if member.dies_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    # What the launcher wants.

    def _obey(self, body: bytes) -> None:
        message = pickle.loads(body)
        self._do[type(message)](message)

    def _on_hello(self, hello: Hello) -> None:
        self._index_length = hello.index_length
        self._briefing = briefing.load(self._file, hello.index_length)
        gc.freeze()  # what is here now is never looked at by a worker's collector, so its pages stay shared

    def _on_start(self, start: Start) -> None:
        try:
            member = self._fork(start)
        except OSError as error:
            self._launcher.send(NotForked(start.worker, error))
            return
        self._members[start.worker] = member
        self._launcher.send(Forked(start.worker, member.pid))

    def _on_ask(self, ask: Ask) -> None:
        self._tell(ask.worker, ask)

    def _on_dump(self, dump: Dump) -> None:
        member = self._members.get(dump.worker)
        if member is not None:
            with contextlib.suppress(OSError):
                os.kill(member.pid, kernel.SHOW_STACKS)

    def _on_kill(self, kill: Kill) -> None:
        member = self._members.get(kill.worker)
        if member is not None and kill.at_once:
            kernel.kill_group(member.pid)
        elif member is not None:
            now = time.monotonic()
            member.dies_at, member.dies_by = now + _LAST_WORDS_S, now + _LAST_WORDS_BY_S
            with contextlib.suppress(OSError):
                os.kill(member.pid, signal.SIGQUIT)

    def _tell_all(self, message: Over | Placed) -> None:
        for worker in self._members:
            self._tell(worker, message)

    def _on_bye(self, bye: Bye) -> None:
        self._is_over = self._said_bye = True

    def _end(self, events: int) -> None:
        self._is_over = True

    # Workers: how they begin, what they say, how they end.

    def _fork(self, start: Start) -> Member:
        ours, theirs = (end.detach() for end in socket.socketpair())
        try:
            pid = os.fork()
        except OSError:
            os.close(ours)
            os.close(theirs)
            raise
        if pid == 0:
            raise self._newborn(theirs, start)
        os.close(theirs)
        kernel.own_group(pid)
        channel = Channel(ours, self._selector, partial(self._relay, start.worker))
        return Member(start.worker, child.mark(start.worker, start.attempt), pid, channel)

    def _newborn(self, control: int, start: Start) -> Newborn:
        assert self._briefing is not None
        birth = Birth(control, self._file, self._index_length, start.worker, start.attempt)
        return Newborn(birth, self._briefing, self._open_files)

    def _tell(self, worker: str, message: Any) -> None:
        member = self._members.get(worker)
        if member is not None:
            member.channel.send(message)

    def _relay(self, worker: str, body: bytes) -> None:
        self._launcher.send(Said(worker, body))

    def _on_alarm(self, events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._alarm, 4096)
        self._reap()

    def _reap(self, *, wait: bool = False) -> bool:
        """Buries the dead; whether there were any."""
        members = {member.pid: member for member in self._members.values()}
        dead = list(kernel.ended_children(wait=wait))
        for pid, status, peak_bytes in dead:
            if pid in members:  # if not, it was adopted
                self._bury(members[pid], status, peak_bytes)
        return bool(dead)

    def _bury(self, member: Member, status: int, peak_bytes: int) -> None:
        member.channel.drain()
        member.channel.close()
        del self._members[member.worker]
        self._end_orphans_of(member)
        out_of_memory = self._memory.has_struck()
        self._launcher.send(Gone(member.worker, status, peak_bytes, out_of_memory))

    def _end_orphans_of(self, member: Member) -> None:
        """Ends what it has started and what had left its group: with its death that became ours."""
        workers = {other.pid for other in self._members.values()}
        for pid in set(kernel.children()) - workers:
            if kernel.has_mark(pid, member.mark):
                kernel.kill_descendants(pid)
                kernel.kill_group(pid)

    def _kill_due(self) -> None:
        now = time.monotonic()
        for member in self._members.values():
            if member.dies_at is None or member.dies_at > now:
                continue
            if now < member.dies_by and kernel.is_pending(member.pid, signal.SIGQUIT):
                member.dies_at = min(now + _LAST_WORDS_S, member.dies_by)
            else:
                member.dies_at = None
                kernel.kill_group(member.pid)

    def _end_all(self) -> None:
        """Kills until no child is left; what loses its parent meanwhile becomes a child."""
        ended = True
        while ended:
            for pid in {*kernel.children(), *(member.pid for member in self._members.values())}:
                kernel.kill_group(pid)
            ended = self._reap(wait=True)


def main(lifeline: int, file: int, death: int | None, runtime: str) -> NoReturn:
    """The host's process."""
    kernel.adopt_orphans()
    kernel.name_process("host")
    gc.disable()
    try:
        said_bye = Host(lifeline, file, death).run()
    except Newborn as newborn:
        inheritance = newborn.inheritance
    else:
        _leave(said_bye, runtime)
    child.forked(*inheritance)


def _leave(said_bye: bool, runtime: str) -> NoReturn:
    """Tidies up if the launcher cannot do it any more."""
    if not said_bye:
        keeper.clear_away(runtime)
    os._exit(0)
