"""Notices peers that vanish while something of ours is on its way to them.

TCP repeats for a quarter of an hour what is not acknowledged, and does not probe meanwhile. The
kernel's own limit, TCP_USER_TIMEOUT, will not do: it also ends connections to a peer that is alive but
is not reading, such as one whose method holds the GIL. So a thread looks at the kernel's
counters twice a second, for as long as there are connections to other hosts. A peer has vanished
when its kernel has acknowledged nothing for `SILENT_MS`, although we have asked at least twice
since. The connection is then cut, and threads that read or write learn that it has ended.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
import weakref
from typing import NamedTuple

from launchpad.courier import fork

SILENT_MS = 2400
_POLL_S = 0.5
_UNANSWERED = 2  # one question may get lost

_HEAD = struct.Struct("@5B")
_COUNTERS = struct.Struct("@24I")
_COUNTERS_AT = 8


class Info(NamedTuple):
    """What we look at of the kernel's `struct tcp_info`."""

    probes: int  # of a closed window or a silent peer, since the last acknowledgement
    last_ack_ms: int  # since the last acknowledgement
    repeats: int  # segments sent again, ever


class PeerSilence:
    """How long one peer has acknowledged nothing."""

    def __init__(self) -> None:
        self._repeats = 0  # those up to here may have been acknowledged

    def is_dead(self, info: Info, since_last_check_ms: float) -> bool:
        if info.last_ack_ms <= since_last_check_ms:
            self._repeats = info.repeats
        unanswered = info.repeats - self._repeats + info.probes
        return info.last_ack_ms >= SILENT_MS and unanswered >= _UNANSWERED


class LivenessMonitor:
    """Watches sockets until they are closed. Its thread runs as long as there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._silences: weakref.WeakKeyDictionary[socket.socket, PeerSilence]
        self._silences = weakref.WeakKeyDictionary()
        self._has_thread = False
        fork.drop_in_child(self)

    def watch(self, sock: socket.socket) -> None:
        """From now on, until it is closed, `sock` is cut when its peer vanishes. Linux only."""
        with self._lock:
            self._silences[sock] = PeerSilence()
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(
                    target=self._main, name="courier-peer-liveness", daemon=True
                ).start()

    def drop_inherited(self) -> None:
        """For a forked child: the thread is the parent's."""
        self._lock = threading.Lock()
        self._silences = weakref.WeakKeyDictionary()
        self._has_thread = False

    def _main(self) -> None:
        checked_at = time.monotonic()
        while True:
            with self._lock:
                # What has been closed is forgotten; if that was all, the thread ends. No variable refers
                # to a socket while this sleeps.
                self._silences = weakref.WeakKeyDictionary(
                    {sock: s for sock, s in self._silences.items() if sock.fileno() >= 0}
                )
                self._has_thread = len(self._silences) > 0
                if not self._has_thread:
                    return
            time.sleep(_POLL_S)
            now = time.monotonic()
            self._check((now - checked_at) * 1e3)
            checked_at = now

    def _check(self, since_last_check_ms: float) -> None:
        with self._lock:
            silences = tuple(self._silences.items())
        for sock, silence in silences:
            with contextlib.suppress(OSError):  # it has been closed
                size = _COUNTERS_AT + _COUNTERS.size
                data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
                counters = _COUNTERS.unpack_from(data, _COUNTERS_AT)
                info = Info(_HEAD.unpack_from(data)[3], counters[12], counters[23])
                if silence.is_dead(info, since_last_check_ms):
                    cut(sock)


def cut(sock: socket.socket) -> None:
    """Ends reads and writes that are under way; the kernel keeps no copy to repeat."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
    sock.shutdown(socket.SHUT_RDWR)


monitor = LivenessMonitor()  # one per process: its thread is
