"""Baggage: a worker's state directory on its way from one attempt to the next, which is another pod.

    pod ── as letters, when the worker has ended ──▶ launcher ── as Secrets ──▶ the next pod

Only where the pod outlives its worker: one that is deleted, or whose node dies, takes along what it has. A
volume of the user's, mounted in that place, is left alone.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

MOST_BYTES = 8 << 20
"""Who keeps more needs a volume."""


def is_empty(folder: Path) -> bool:
    """Whether there is nothing in it, or it is not there."""
    return not folder.is_dir() or not any(folder.iterdir())


def size_of(folder: Path) -> int:
    """The bytes of all its files, as they are."""
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def packed(folder: Path) -> bytes:
    """The files of a folder; nothing if there are none. OSError: they cannot be read."""
    if is_empty(folder):
        return b""
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
            archive.add(folder, arcname=".")
        return file.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Puts them into another folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
