"""Work that a network card can do for the kernel: `python -m tests.hosts.offloads INTERFACE on|off`.

With it, two hosts exchange frames of 64 KiB without checksums. Without it, they send what goes over a real
cable: frames no larger than the MTU, with checksums, which a relay can lose one by one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import socket
import struct
import sys

_SIOCETHTOOL = 0x8946
# ETHTOOL_S…, in the order in which they depend on each other.
_TX_CHECKSUM = 0x17
_SCATTER_GATHER = 0x19
_TCP_SEGMENTATION = 0x1F
_SEGMENTATION = 0x24
_RECEIVE_MERGING = 0x2C
_ALL = (_TX_CHECKSUM, _SCATTER_GATHER, _TCP_SEGMENTATION, _SEGMENTATION, _RECEIVE_MERGING)


def set_offloads(interface: str, is_on: bool) -> None:
    """Turn all of it on or off, as far as the card has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for command in _ALL:
            value = ctypes.create_string_buffer(struct.pack("II", command, is_on))
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))
            with contextlib.suppress(OSError):
                fcntl.ioctl(sock, _SIOCETHTOOL, request)


if __name__ == "__main__":
    set_offloads(sys.argv[1], sys.argv[2] == "on")
