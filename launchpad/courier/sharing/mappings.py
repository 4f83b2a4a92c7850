"""The receiver's side of segments: what is mapped here, and opening messages (see segments.py).

mappings = Mappings()                                # one for each connection
mappings.take(fd)                                    # when one comes, with SCM_RIGHTS
buffers = mappings.receive(descriptor, lengths)      # of a message
mappings.close()                                     # the arrays live on
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Callable, Sequence

from launchpad.courier import forking
from launchpad.courier.errors import ProtocolError
from launchpad.courier.protocol.wire import Chunk, allocate
from launchpad.courier.sharing import leases, segments
from launchpad.courier.sharing.region import Region
from launchpad.courier.sharing.segments import FREED, HEADER_SIZE, N_WORDS, NUMBER, RETIRED
from launchpad.courier.sharing.trimmer import trimmer


class Mapping:
    """One segment of some process, mapped here."""

    def __init__(self, fd: int, size: int) -> None:
        self.size = size
        self._end = 0  # of the longest message so far
        self._move_to(Region.map_file(fd, size))
        self.number: int = self._words[NUMBER]

    @property
    def is_over(self) -> bool:
        """No message will name it again, and no array is alive in it."""
        retired = self._words[RETIRED]
        return retired != 0 and retired == self._words[FREED]

    def open(self, serial: int, offsets: Sequence[int], lengths: Sequence[int]) -> list[memoryview]:
        """The buffers of a message: views, but copies when too much is leased already."""
        end = offsets[-1] + lengths[-1] if offsets else 0
        self._end = max(self._end, end)
        memory = leases.begin(self, serial, end)
        if memory is None:
            return self._copy_out(serial, offsets, lengths)
        self.region.populate(self._end)
        return [memory[at : at + n] for at, n in zip(offsets, lengths, strict=True)]

    def give_back(self, serial: int) -> None:
        """Tells the sender; frees the memory if the sender has left it to us."""
        self._words[FREED] = serial
        if self._words[RETIRED] == serial:
            self.region.empty(HEADER_SIZE)

    def part(self) -> None:
        """Leaves the place to the leases there are, as memory of their own."""
        self._move_to(self.region.part_from(self._end))

    def _move_to(self, region: Region) -> None:
        self.region = region
        self._words = region.get_words(N_WORDS)

    def _copy_out(
        self, serial: int, offsets: Sequence[int], lengths: Sequence[int]
    ) -> list[memoryview]:
        copies = [allocate(n) for n in lengths]
        for offset, copy in zip(offsets, copies, strict=True):
            self.region.read(offset, copy)
        self.give_back(serial)
        return copies


class _Files:
    """What is mapped, by file: connections to one process share its segments."""

    def __init__(self) -> None:
        self.drop_inherited()
        forking.drop_in_child(self)

    def map(self, fd: int) -> Mapping:
        """Raises ProtocolError for what is no segment, OSError when it cannot be had."""
        status = segments.check_file(fd)
        key = (status.st_dev, status.st_ino)
        with self._lock:
            mapping = self._mappings.get(key)
            if mapping is None:
                mapping = self._mappings[key] = Mapping(fd, status.st_size)
            return mapping

    def drop_inherited(self) -> None:
        self._lock = threading.Lock()
        self._mappings: weakref.WeakValueDictionary[tuple[int, int], Mapping] = (
            weakref.WeakValueDictionary()
        )


# One per process by nature, as its memory is.
_files = _Files()


class Mappings:
    """The segments that the peer at the other end of one connection has named.

    `take` and `receive` may be called by one thread at a time, `close` by any.

    Args:
        is_peer_gone: asked about once a second while segments are mapped; true closes.
    """

    def __init__(self, is_peer_gone: Callable[[], bool] = lambda: False) -> None:
        self._is_peer_gone = is_peer_gone
        self._known: dict[int, Mapping] = {}
        self._lost: set[int] = set()
        forking.drop_in_child(self)

    def take(self, fd: int) -> None:
        """Maps the segment whose descriptor has come. Closes `fd`.

        What cannot be mapped, or is no segment, is lost; the message that names it will say so.
        """
        try:
            mapping = _files.map(fd)
        except (OSError, ProtocolError):
            return
        finally:
            os.close(fd)
        self._known.setdefault(mapping.number, mapping)
        trimmer.watch(self)

    def receive(self, descriptor: Chunk, lengths: Sequence[int]) -> list[memoryview]:
        """The buffers of a message, private and writable.

        Raises ProtocolError for what no courier sends; OSError when the segment could not be had
        for lack of descriptors or memory: the message is lost then, but not the connection.
        """
        number, serial, comes_with_fd = segments.decode_descriptor(descriptor)
        mapping = self._known.get(number)
        if mapping is None:
            raise self._missing(number, comes_with_fd)
        offsets, end = segments.lay_out(lengths)
        if end > mapping.size:
            raise ProtocolError(f"buffers up to {end} in a segment of {mapping.size} bytes")
        return mapping.open(serial, offsets, lengths)

    def close(self) -> None:
        """Forgets the segments. Arrays in them live on, and give them back when they die."""
        self._known.clear()
        trimmer.look()

    def trim(self, now: float) -> bool:
        """Forgets segments that will not be named again; False when there are no others."""
        if self._is_peer_gone():
            self.close()
        for number, mapping in tuple(self._known.items()):
            if mapping.is_over:
                self._known.pop(number, None)
        return bool(self._known)

    def drop_inherited(self) -> None:
        """For a forked child: the connection is the parent's."""
        self._known.clear()

    def _missing(self, number: int, comes_with_fd: bool) -> Exception:
        if comes_with_fd:  # the kernel drops what the process has no room for
            self._lost.add(number)
        if number in self._lost:
            return OSError(errno.EMFILE, "a segment could not be received, or not be mapped")
        return ProtocolError(f"segment {number} came without its descriptor")
