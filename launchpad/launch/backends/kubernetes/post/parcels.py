"""Parcels: bytes in as few Secrets as will do, each of which takes no more than a MiB. Pure.

payload ──compressed──▶ [part-000, part-001, …] ──one projected volume──▶ files of one folder ──▶ payload

Few, since a kubelet asks for each of them by itself, and waits long between two questions.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PART_BYTES = 1_000_000
"""Of a Secret's 1,048,576 bytes; the rest is for its names."""


def packed(content: bytes) -> list[bytes]:
    """The parts; the same for the same content."""
    whole = zlib.compress(content, 6)
    return [whole[i : i + PART_BYTES] for i in range(0, len(whole), PART_BYTES)]


@dataclass(frozen=True)
class Stowed:
    """What is where.

    Attributes:
      boxes: For each Secret its files. The first begins with those that every pod gets.
      places: Content → (number of the box, file in it) of each of its parts.
    """

    boxes: tuple[dict[str, bytes], ...]
    places: Mapping[str, tuple[tuple[int, str], ...]]


def stowed(first: Mapping[str, bytes], contents: Mapping[str, bytes]) -> Stowed:
    """Contents, packed, in as few boxes as will do: one that does not fit any more begins a new box."""
    boxes, places = [dict(first)], {}
    for name, content in contents.items():
        parts = packed(content)
        places[name] = tuple(
            (_put(boxes, file_name(name, i), part), file_name(name, i))
            for i, part in enumerate(parts)
        )
    return Stowed(tuple(boxes), places)


def _put(boxes: list[dict[str, bytes]], file: str, part: bytes) -> int:
    if sum(map(len, boxes[-1].values())) + len(part) > PART_BYTES:
        boxes.append({})
    boxes[-1][file] = part
    return len(boxes) - 1


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
