"""What a worker saves, so that its next attempt, or the next launch, goes on where it was: as numbered files.

    <folder>/                       of one worker
        state-000041.pickle
        state-000042.pickle         the newest; what is older than the last `keep` is deleted

    a file      an ordinary pickle │ b"LPSTATE1" │ its length, 8 bytes │ its BLAKE2b hash, 16 bytes

Rules:
1. A file is there whole or not at all: it is written under another name, forced onto the disk (fsync),
   renamed, and the folder forced, too. In an object store the hash says what is whole.
2. What is not whole, or not ours, is named and passed over: the version before it is used.
3. A version that is saved where there are some above it takes their place: they are deleted when it is on the
   disk, before it has its name. Whatever happens meanwhile, the newest is never one of those.
4. An attempt that has ended changes nothing: see `fence.py`.
5. Classes and functions of the script are saved with their definition. Where today's script has one of that
   name it is that which is loaded, so that a class may get another method between two launches.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import logging
import operator
import os
import pickle
import re
import sys
import types
from collections.abc import Iterator
from typing import IO, Any

from launchpad.courier.codec import by_value
from launchpad.errors import StateError
from launchpad.state.atomic_folder import folder_of
from launchpad.state.fence import Fence

_MAGIC = b"LPSTATE1"
_HASH_BYTES = 16
_TRAILER_BYTES = len(_MAGIC) + 8 + _HASH_BYTES
_CHUNK = 1 << 20
_NAME = re.compile(r"state-(\d{6,})\.pickle")
_PROTOCOL = 5


class SavedStates:
    """The saved states of one worker. Used by one thread at a time.

    Args:
        owner: Whose they are, for errors.
        place: A directory, which need not be there yet, or a URL.
        fence: What the attempt that saves passes for each change.
    """

    def __init__(self, owner: str, place: str, fence: Fence | None = None) -> None:
        self._owner = owner
        self._folder = folder_of(place, fence)

    def versions(self) -> list[int]:
        """The numbers of those that are whole, in their order."""
        with self._errors("look up its state"):
            return [
                number for number, name in sorted(self._names().items()) if not self._flaw(name)
            ]

    def save(self, value: object, version: int | None, keep: int) -> int:
        """Saves it as this version, by default the next one; returns its number.

        Raises:
            Stopped: the attempt has ended meanwhile, and its next one may have begun.
        """
        if keep < 1:
            raise ValueError(f"keep is how many versions stay, 1 or more, not {keep!r}")
        with self._errors("save its state"):
            names = self._names()
            number = max(names, default=0) + 1 if version is None else operator.index(version)
            if number < 0:
                raise ValueError(f"a version is 0 or more, not {number}")
            name = f"state-{number:06d}.pickle"
            # Those above it are of a future that did not come: it was resumed from an earlier one.
            above = [names[n] for n in sorted(names, reverse=True) if n > number]
            with self._folder.writing(name, instead_of=above) as file:
                _write(value, file)
            older = sorted(n for n in names if n < number)
            surplus = max(0, len(older) + 1 - keep)
            with self._folder.fence.lock:
                self._folder.fence.check()
                for stale in older[:surplus]:
                    self._folder.remove(names[stale])
        return number

    def load(self, version: int | None = None) -> tuple[int, Any] | None:
        """The newest that is whole, or this one, with its number; None: none is there.

        Raises:
            StateError: it cannot be read; or a whole one cannot be unpickled; or there is no such version.
        """
        with self._errors("load its state"):
            names = self._names()
        if version is not None and version not in names:
            raise StateError(
                f"{self._owner} has no saved state of version {version} in {self._folder}; there"
                f" {'are' if names else 'is none'} {sorted(names) or ''}".rstrip()
            )
        for number in sorted(names, reverse=True) if version is None else (version,):
            name = names[number]
            with self._errors("load its state"):
                if not (flaw := self._flaw(name)):
                    with self._folder.reading(name) as file:
                        return number, self._unpickled(file, name)
            text = f"{self._owner}: {self._folder}/{name} is passed over: {flaw}"
            if version is not None:
                raise StateError(text)
            logging.getLogger("launchpad.state").warning(text)
        return None

    def _names(self) -> dict[int, str]:
        """Version → file."""
        return {int(m[1]): name for name in self._folder.names() if (m := _NAME.fullmatch(name))}

    def _flaw(self, name: str) -> str:
        with self._folder.reading(name) as file:
            return _flaw_of(file)

    def _unpickled(self, file: IO[bytes], name: str) -> Any:
        try:
            return pickle.load(file)
        except Exception as error:
            raise StateError(
                f"{self._owner} cannot unpickle its state {self._folder}/{name}, which is whole:"
                f" {type(error).__name__}: {error}. Is each class still where it was imported from?"
            ) from error

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            hint = "; what was saved before is untouched" if "save" in what else ""
            room = " Make room, or save less often or less." if full else ""
            raise StateError(
                f"{self._owner} cannot {what} in {self._folder}: {why}{hint}.{room}"
            ) from error


class StatePickler(by_value.Pickler):
    """cloudpickle's, with the name of what the script defines beside its definition."""

    into_main = True

    def reducer_override(self, obj: Any) -> Any:
        is_code = isinstance(obj, type | types.FunctionType)
        if is_code and obj.__module__ == "__main__" and by_value.is_named_in("__main__", obj):
            definition = by_value.dumps(obj, _PROTOCOL, into_main=True)
            return _defined_here_or, (obj.__qualname__, definition)
        return super().reducer_override(obj)


def _defined_here_or(name: str, definition: bytes) -> Any:
    """What the script has under this name today; else what was saved."""
    try:
        found = operator.attrgetter(name)(sys.modules["__main__"])
    except AttributeError:
        found = None
    is_of_script = getattr(found, "__module__", "") == "__main__"
    return found if is_of_script else pickle.loads(definition)


class _Hashed(io.RawIOBase):
    """Passes on what is written, and knows its hash."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.blake2b(digest_size=_HASH_BYTES)
        self._length = 0

    def write(self, data: Any) -> int:
        self._hash.update(data)
        self._length += memoryview(data).nbytes
        return self._file.write(data)

    @property
    def trailer(self) -> bytes:
        return _MAGIC + self._length.to_bytes(8, "big") + self._hash.digest()


def _write(value: object, file: IO[bytes]) -> None:
    hashed = _Hashed(file)
    StatePickler(hashed, protocol=_PROTOCOL).dump(value)
    file.write(hashed.trailer)


def _flaw_of(file: IO[bytes]) -> str:
    """Why it is no state that was saved whole; empty if it is."""
    size = file.seek(0, os.SEEK_END)
    if size < _TRAILER_BYTES:
        return f"its {size} bytes are no saved state"
    file.seek(size - _TRAILER_BYTES)
    trailer = file.read(_TRAILER_BYTES)
    if trailer[: len(_MAGIC)] != _MAGIC:
        return "it is torn, or something else has written it: its last bytes are not those of a saved state"
    file.seek(0)
    left, found = size - _TRAILER_BYTES, hashlib.blake2b(digest_size=_HASH_BYTES)
    while left and (chunk := file.read(min(left, _CHUNK))):
        found.update(chunk)
        left -= len(chunk)
    length = (size - _TRAILER_BYTES).to_bytes(8, "big")
    return (
        "" if trailer == _MAGIC + length + found.digest() else "it is damaged: its hash is another"
    )
