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
import time
import weakref
from typing import NamedTuple

from launchpad.courier.periodic_checks import PeriodicChecks

SILENT_MS = 2400
_UNANSWERED = 2  # one question may get lost

_TCP_INFO = struct.Struct("@5B3x24I")  # as much of the kernel's `struct tcp_info` as we look at


class Info(NamedTuple):
    """What we look at of the kernel's `struct tcp_info`."""

    probes: int  # of a closed window or a silent peer, since the last acknowledgement
    last_ack_ms: int  # since the last acknowledgement
    repeats: int  # segments sent again, ever


class PeerSilence:
    """How long the peer at the other end of a socket has acknowledged nothing."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = weakref.ref(sock)
        self._checked_at = time.monotonic()
        self._repeats = 0  # those up to here may have been acknowledged

    def check(self, now: float) -> bool:
        """Cuts the connection when the peer has vanished; False once it is closed."""
        sock = self._sock()
        if sock is None or sock.fileno() < 0:
            return False
        with contextlib.suppress(OSError):  # it has been closed
            data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            _, _, _, probes, _, *counters = _TCP_INFO.unpack(data)
            info = Info(probes, counters[12], counters[23])
            if self.is_dead(info, (now - self._checked_at) * 1e3):
                cut(sock)
        self._checked_at = now
        return True

    def is_dead(self, info: Info, since_last_check_ms: float) -> bool:
        if info.last_ack_ms <= since_last_check_ms:
            self._repeats = info.repeats
        unanswered = info.repeats - self._repeats + info.probes
        return info.last_ack_ms >= SILENT_MS and unanswered >= _UNANSWERED


def cut(sock: socket.socket) -> None:
    """Ends reads and writes that are under way; the kernel keeps no copy to repeat."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
    sock.shutdown(socket.SHUT_RDWR)


_checks = PeriodicChecks("courier-peer-liveness", 0.5)


def watch(sock: socket.socket) -> None:
    """From now on, until it is closed, `sock` is cut when its peer vanishes. Linux only."""
    _checks.add(PeerSilence(sock).check)
