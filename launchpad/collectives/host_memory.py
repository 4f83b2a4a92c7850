"""HostMemory: shared memory in which ranks of one host exchange arrays, without calls or server threads.

    rank 0   writes its row of memory, then a line to each other rank's pipe ──▶ rank 1 reads all rows
    rank 1   writes its row of memory, then a line to each other rank's pipe ──▶ rank 0 reads all rows

The thread of one rank wakes the threads of the other ranks directly. Neither the memory nor the pipes have a
name in a file system. Each rank opens those of the other ranks once, through /proc. They disappear with the
last process that has them open, no matter how this process ends.
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
"""The place of an open file: the boot id of its host, its path in /proc, and its device and inode."""

_LINE = struct.Struct("<iqq236s")
"""A line: the rank, the number of the use, and the number and text of the operation.

Writing a line to a pipe is atomic.
"""

_WAKE = _LINE.pack(-1, -1, -1, b"")
_ROWS = 3
# The largest number of lines to read at once.
_MAX_LINES = 32


class HostMemory:
    """Three rows of memory and a pipe for each rank. Not thread-safe, except for `wake`.

    Each use of the memory uses the next row. After all ranks have come to a use, and before they announce the
    next one, the ranks read the rows of this use and of the previous one, and each rank writes its row for
    the next use.

    Args:
        mailbox: The mailbox. It knows the reasons to end a wait.
        ranks: The ranks, by their numbers in the generation.
        own: The index of this rank in `ranks`.
        memories, pipes: The ranks' memories and pipes, in the order of `ranks`. The pipes are closed with
            this object.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        ranks: Sequence[int],
        own: int,
        memories: Sequence[mmap.mmap],
        pipes: Sequence[int],
    ) -> None:
        self._mailbox = mailbox
        self._rank = ranks[own]
        self._memories = memories
        self._pipe = pipes[own]
        self._others = [*pipes[:own], *pipes[own + 1 :]]
        self._last = {rank: (0, 0, b"") for rank in ranks if rank != self._rank}
        self._uses = 0
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)
        weakref.finalize(self, _close, pipes).atexit = False
        mailbox.wake_at_end(self)

    def rows(self, dtype: Any, size: int) -> list[Any]:
        """Return the rows of all ranks for the next use, by rank."""
        # Don't import numpy with the module: a process that preloads torch must not import numpy before
        # torch.
        import numpy as np

        all_rows = [np.frombuffer(memory, dtype).reshape(_ROWS, -1) for memory in self._memories]
        return [rows[(self._uses + 1) % _ROWS, :size] for rows in all_rows]

    def announce(self, number: int, operation: str) -> None:
        """Announce that this rank has written its row for the next use, which is in this operation."""
        self._uses += 1
        line = _LINE.pack(self._rank, self._uses, number, operation.encode())
        for pipe in self._others:
            os.write(pipe, line)

    def wait(self, number: int, operation: str, timeout_s: float) -> list[int]:
        """Wait until all ranks have come to this use, or the time is up. Return the ranks that have not come.

        Raises:
            Different: a rank has come to this use in a different operation.
            Gone: a rank has returned without coming to this use.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            absent = [rank for rank, (use, *_) in self._last.items() if use < self._uses]
            if not absent:
                break
            # Get the reason before reading, because lines that came before the reason must still be read.
            reason = self._mailbox.reason_to_end(absent)
            if self._read():
                continue
            if reason is not None:
                raise reason
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return absent
            self._poll.poll(left_s * 1e3)
        ours = self._uses, number, operation.encode()
        for rank, theirs in self._last.items():
            if theirs[0] == self._uses and theirs != ours:
                raise Different(operation, rank, theirs[2].decode())
        return []

    def wake(self) -> None:
        """Make `wait` check for a reason to end."""
        # If the pipe is full, `wait` is woken anyway, because it has lines to read.
        with contextlib.suppress(BlockingIOError):
            os.write(self._pipe, _WAKE)

    def _read(self) -> bool:
        """Read lines from this rank's pipe. Return True if there were any."""
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
    """Open the memory that these ranks share. If one of them cannot open it, return None on all of them.

    A rank on another host cannot open it, for example. All ranks must call this function in the same
    operation. The other arguments are those of HostMemory.

    Args:
        row_bytes: The size of a row, a multiple of the page size.
        meet: A function like `RankEdges.meet`. Its errors are raised.
    """
    offer = None
    host_memory = None
    # These descriptors stay open until all ranks have opened them.
    fds: list[int] = []
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
                host_memory = HostMemory(mailbox, ranks, own, memories, pipes)
        return host_memory if meet(host_memory is not None, all) else None
    finally:
        _close(fds if host_memory is not None else fds + pipes)


def _place_of(fd: int) -> Place:
    status = os.fstat(fd)
    return boot_id(), f"/proc/{os.getpid()}/fd/{fd}", status.st_dev, status.st_ino


def _open(place: Place) -> int:
    """Open a rank's file. If the file is of another host or container, raise OSError without opening it."""
    boot, path, device, inode = place
    status = os.stat(path)
    if (boot, device, inode) != (boot_id(), status.st_dev, status.st_ino):
        raise FileNotFoundError(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
