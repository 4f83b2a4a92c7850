"""Parcels: bytes as several Secrets, since one takes no more than a MiB. Pure.

payload ──compressed──▶ [part-000, part-001, …] ──one projected volume──▶ files of one folder ──▶ payload
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

PART_BYTES = 1_000_000
"""Of a Secret's 1,048,576 bytes; the rest is for its names."""


def packed(content: bytes) -> list[bytes]:
    """The parts; the same for the same content."""
    whole = zlib.compress(content, 6)
    return [whole[i : i + PART_BYTES] for i in range(0, len(whole), PART_BYTES)]


def unpacked(folder: Path, name: str) -> bytes:
    """What was packed, from the files `name-000`, `name-001`, … of a folder."""
    return zlib.decompress(b"".join(_parts(folder, name)))


def file_name(name: str, index: int) -> str:
    """The file of one part."""
    return f"{name}-{index:03d}"


def file_names(name: str, count: int) -> list[str]:
    """The files of all parts."""
    return [file_name(name, i) for i in range(count)]


def _parts(folder: Path, name: str) -> Iterator[bytes]:
    index = 0
    while (path := folder / file_name(name, index)).exists():
        yield path.read_bytes()
        index += 1
