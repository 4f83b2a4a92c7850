"""A relay for frames between a host's port and the switch, which delays them, loses some or limits the rate.

The switch starts it: `python -m tests.hosts.relay PORT TAP DELAY_MS JITTER_MS LOSS MBIT`. It does what netem
does in kernels that have it. It prints a line when the tap is there, and runs until it is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import NoReturn

_ALL_PROTOCOLS = 3
_PACKET_OUTGOING = 4
_SOL_PACKET = 263
_ADD_MEMBERSHIP = 1
_PROMISCUOUS = 1
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 8 << 20
_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
_MAX_FRAME_BYTES = 1 << 16
_FRAMES_AT_ONCE = 256


@dataclass(frozen=True)
class Slowness:
    """The properties of a slow cable; they hold for each direction by itself.

    Attributes:
        loss: The share of frames that are lost, from 0 to 1.
        mbit: Megabits a second that pass; 0 for no limit.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    mbit: float = 0.0


class Direction:
    """Frames on their way to one side. They arrive in order."""

    def __init__(self, sink: int, slowness: Slowness) -> None:
        self._sink = sink
        self._slowness = slowness
        self._last_due = 0.0
        self._frames: deque[tuple[float, bytes]] = deque()

    def add(self, frame: bytes) -> None:
        """Take a frame, or lose it."""
        if random.random() < self._slowness.loss:
            return
        jitter_ms = random.uniform(-1, 1) * self._slowness.jitter_ms
        due = time.monotonic() + (self._slowness.delay_ms + jitter_ms) / 1e3
        on_the_wire_s = 0.0
        if self._slowness.mbit:
            on_the_wire_s = len(frame) * 8 / (self._slowness.mbit * 1e6)
        self._last_due = max(due, self._last_due + on_the_wire_s)
        self._frames.append((self._last_due, frame))

    def deliver(self) -> None:
        """Send the frames that are due."""
        while self._frames and self._frames[0][0] <= time.monotonic():
            _, frame = self._frames.popleft()
            # The cable is out, or the sink's queue is full: the frame is lost.
            with contextlib.suppress(OSError):
                os.write(self._sink, frame)

    def wait_ms(self) -> float | None:
        """Return the time until the next frame is due; None if there is none."""
        if not self._frames:
            return None
        return max(0.0, (self._frames[0][0] - time.monotonic()) * 1e3)


def open_port(port: str) -> socket.socket:
    """Open a socket that gets all frames which a host sends."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    sock.bind((port, 0))
    promiscuous = struct.pack("iHH8s", socket.if_nametoindex(port), _PROMISCUOUS, 0, b"")
    sock.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, promiscuous)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
    sock.setblocking(False)
    return sock


def open_tap(name: str) -> int:
    """Make a port of the switch whose frames this process reads and writes."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
    return tap


def main(port_name: str, tap_name: str, slowness: Slowness) -> NoReturn:
    """Carry frames both ways."""
    port = open_port(port_name)
    tap = open_tap(tap_name)
    print("ready", flush=True)
    to_switch = Direction(tap, slowness)
    to_host = Direction(port.fileno(), slowness)
    poll = select.poll()
    poll.register(port, select.POLLIN)
    poll.register(tap, select.POLLIN)
    while True:
        waits = [to_switch.wait_ms(), to_host.wait_ms()]
        poll.poll(min((wait for wait in waits if wait is not None), default=None))
        # Reading stops with an OSError when there is nothing more, or while the cable is out.
        with contextlib.suppress(OSError):
            for _ in range(_FRAMES_AT_ONCE):
                frame, origin = port.recvfrom(_MAX_FRAME_BYTES)
                # A packet socket also gets what it has sent itself.
                if origin[2] != _PACKET_OUTGOING:
                    to_switch.add(frame)
        with contextlib.suppress(OSError):
            for _ in range(_FRAMES_AT_ONCE):
                to_host.add(os.read(tap, _MAX_FRAME_BYTES))
        to_switch.deliver()
        to_host.deliver()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Slowness(*map(float, sys.argv[3:])))
