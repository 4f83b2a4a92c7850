"""HostMemory: how ranks of one host exchange arrays, with no call and no server's thread in between.

    rank 0   writes its row of memory, then a line to each other's pipe ──▶ rank 1 reads all rows
    rank 1   writes its row of memory, then a line to each other's pipe ──▶ rank 0 reads all rows

A rank's own thread wakes the others'. Neither the memory nor the pipes have a name in a file system: ranks
open each other's once, by way of /proc. They are gone with the last process that has them open, however it
ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import struct
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from launchpad.collectives.mailbox import Different, Mailbox
from launchpad.courier.protocol.handshake import boot_id
from launchpad.courier.shm import segments

Place = tuple[bytes, str, int, int]
"""Of an open file: the boot of its host, its path in /proc, and what is there: device and inode."""

_LINE = struct.Struct("<iqq236s")
"""Rank, number of the use, number and text of the operation; a pipe takes it as a whole."""

_WAKE = _LINE.pack(-1, -1, -1, b"")
_ROWS = 3
_MAX_LINES = 32  # to read at once


class HostMemory:
    """Three rows of memory and a pipe for each rank. For one thread; but `wake` is for any.

    The rows are used by turns. From when all have come to a use until they announce the next one, they read
    its rows and those of the use before, and each writes its row of the next one.

    Args:
        mailbox: Knows why to wait no longer.
        ranks: Whose they are, by their numbers in the generation.
        own: The place of this one among them.
        memories, pipes: Theirs. The pipes are closed with this object.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        ranks: Sequence[int],
        own: int,
        memories: Sequence[mmap.mmap],
        pipes: Sequence[int],
    ) -> None:
        self._mailbox, self._rank, self._memories = mailbox, ranks[own], memories
        self._pipe, self._others = pipes[own], [*pipes[:own], *pipes[own + 1 :]]
        self._last = {rank: (0, 0, b"") for rank in ranks if rank != self._rank}
        self._uses = 0
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)
        weakref.finalize(self, _close, pipes).atexit = False
        mailbox.wake_at_end(self)

    def rows(self, dtype: Any, size: int) -> list[Any]:
        """The rows of all for the next use, by rank."""
        import numpy as np  # not with the module: a host that preloads torch must not have it before

        all_rows = [np.frombuffer(memory, dtype).reshape(_ROWS, -1) for memory in self._memories]
        return [rows[(self._uses + 1) % _ROWS, :size] for rows in all_rows]

    def announce(self, number: int, operation: str) -> None:
        """Says that this rank has come to the next use, in that operation, and has written its row."""
        self._uses += 1
        line = _LINE.pack(self._rank, self._uses, number, operation.encode())
        for pipe in self._others:
            os.write(pipe, line)

    def wait(self, number: int, operation: str, timeout_s: float) -> list[int]:
        """Waits for all to come to this use, but no longer than that; those that have not come.

        Raises:
            Different: one has come to it in another operation.
            Gone: one that has not come has returned.
        """
        deadline = time.monotonic() + timeout_s
        while absent := [rank for rank, (use, *_) in self._last.items() if use < self._uses]:
            reason = self._mailbox.reason_to_end(absent)  # before a look at what came before it
            if self._read():
                continue
            if reason is not None:
                raise reason
            left = deadline - time.monotonic()
            if left <= 0:
                return absent
            self._poll.poll(left * 1e3)
        ours = self._uses, number, operation.encode()
        for rank, theirs in self._last.items():
            if theirs[0] == self._uses and theirs != ours:
                raise Different(operation, rank, theirs[2].decode())
        return []

    def wake(self) -> None:
        """Has `wait` look for a reason to end."""
        with contextlib.suppress(BlockingIOError):  # it has much to read already
            os.write(self._pipe, _WAKE)

    def _read(self) -> bool:
        """Whether there was something to read."""
        try:
            data = os.read(self._pipe, _MAX_LINES * _LINE.size)
        except BlockingIOError:
            return False
        for rank, use, number, text in _LINE.iter_unpack(data):
            if rank in self._last:
                self._last[rank] = use, number, text.rstrip(b"\0")
        return True


def open_together(
    mailbox: Mailbox,
    ranks: Sequence[int],
    own: int,
    row_bytes: int,
    meet: Callable[[Any, Callable[[list[Any]], Any]], Any],
) -> HostMemory | None:
    """What these ranks have in common; None in all of them if one cannot open it: it is on another host, say.

    To be called by all in the same operation. The other arguments are those of HostMemory.

    Args:
        row_bytes: A multiple of the size of a page.
        meet: As `RankEdges.meet`; what it raises is raised.
    """
    offer = found = None
    fds: list[int] = []  # until all have opened what is theirs
    pipes: list[int] = []
    try:
        with contextlib.suppress(OSError):
            if segments.IS_SUPPORTED:
                fds += os.pipe2(os.O_CLOEXEC)
                fds.append(segments.create_file(_ROWS * row_bytes))
                offer = _place_of(fds[0]), _place_of(fds[-1])
        offers = meet(offer, list)
        with contextlib.suppress(OSError):
            if all(offers):
                memories = []
                for pipe, memory in offers:
                    pipes.append(_open(pipe))
                    fds.append(_open(memory))
                    memories.append(mmap.mmap(fds[-1], _ROWS * row_bytes))
                found = HostMemory(mailbox, ranks, own, memories, pipes)
        return found if meet(found is not None, all) else None
    finally:
        _close(fds if found is not None else fds + pipes)


def _place_of(fd: int) -> Place:
    status = os.fstat(fd)
    return boot_id(), f"/proc/{os.getpid()}/fd/{fd}", status.st_dev, status.st_ino


def _open(place: Place) -> int:
    """OSError if it is another file, of another host or container. That one is not opened."""
    boot, path, device, inode = place
    status = os.stat(path)
    if (boot, device, inode) != (boot_id(), status.st_dev, status.st_ino):
        raise FileNotFoundError(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
