"""A worker's saved states: numbered files from which its next attempt, or the next launch, continues.

    <folder>/                       of one worker
        state-000041.pickle
        state-000042.pickle         the newest; files older than the last `keep` are deleted

    a file      an ordinary pickle │ b"LPSTATE1" │ its length, 8 bytes │ its BLAKE2b hash, 16 bytes

Rules:
1. A file exists whole or not at all. It is written under another name, flushed to disk (fsync) and renamed;
   then the folder is flushed too. In an object store the hash shows whether a file is whole.
2. Loading skips files that are not whole, or that something else wrote. It logs a warning that names them,
   and uses the version before.
3. Saving a version deletes all versions above it. They are deleted after the new file is on disk and before
   it gets its name, so that the newest version is never one of them, whatever interrupts the save.
4. An attempt that has ended changes nothing: see `fence.py`.
5. Classes and functions of the script are saved with their definition. If the script of the next launch has a
   class or function with the same name, that is loaded instead. So a class may get another method between two
   launches.
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

from launchpad.courier.checks import is_whole
from launchpad.courier.codec import by_value
from launchpad.errors import StateError
from launchpad.state.atomic_folder import folder_of
from launchpad.state.fence import Fence

_log = logging.getLogger("launchpad.state")

_MAGIC = b"LPSTATE1"
_HASH_BYTES = 16
_TRAILER_BYTES = len(_MAGIC) + 8 + _HASH_BYTES
_CHUNK = 1 << 20
_NAME = re.compile(r"state-(\d{6,})\.pickle")
_PROTOCOL = 5


class SavedStates:
    """The saved states of one worker. Not thread-safe.

    Args:
        owner: The worker's name, for errors.
        place: A directory, which need not exist yet, or a URL.
        fence: The fence of the attempt that saves. Each change passes it.
    """

    def __init__(self, owner: str, place: str, fence: Fence | None = None) -> None:
        self._owner = owner
        self._folder = folder_of(place, fence)

    def versions(self) -> list[int]:
        """Return the numbers of the versions that are whole, in ascending order."""
        with self._errors("look up its state"):
            return [
                number for number, name in sorted(self._names().items()) if not self._flaw(name)
            ]

    def save(self, value: object, version: int | None, keep: int) -> int:
        """Save a value and return the number of its version.

        Args:
            version: The number to save it as; the next one if None.
            keep: How many versions to keep, this one included. Older ones are deleted.

        Raises:
            Stopped: The attempt has ended, and the next one may have begun.
            StateError: The value cannot be written to the folder.
        """
        if not is_whole(keep, at_least=1):
            raise ValueError(
                f"keep is how many versions stay, a whole number of 1 or more, not {keep!r}"
            )
        with self._errors("save its state"):
            self._folder.begin()
            names = self._names()
            number = max(names, default=0) + 1 if version is None else operator.index(version)
            if number < 0:
                raise ValueError(f"a version is 0 or more, not {number}")
            name = f"state-{number:06d}.pickle"
            # The worker resumed from a version below these, so they belong to an abandoned history.
            above = [names[n] for n in sorted(names, reverse=True) if n > number]
            with self._folder.writing(name, instead_of=above) as file:
                _write(value, file)
            older = sorted(n for n in names if n < number)
            surplus = max(0, len(older) + 1 - keep)
            with self._folder.fence.lock:
                self._folder.check()
                for stale in older[:surplus]:
                    self._folder.remove(names[stale])
        _log.info("%s has saved its state: version %d in %s", self._owner, number, self._folder)
        return number

    def load(self, version: int | None = None) -> tuple[int, Any] | None:
        """Return a version's number and value.

        Args:
            version: The version to load; the newest whole one if None.

        Returns:
            None if no whole version exists.

        Raises:
            Stopped: The attempt has ended, and the next one has begun.
            StateError: The folder or a file can't be read, a whole file can't be unpickled, or the requested
                version doesn't exist or isn't whole.
        """
        with self._errors("load its state"):
            self._folder.begin()
            names = self._names()
        if version is not None and version not in names:
            raise StateError(
                f"{self._owner} has no saved state of version {version} in {self._folder}, only"
                f" {sorted(names)}"
            )
        for number in sorted(names, reverse=True) if version is None else (version,):
            name = names[number]
            with self._errors("load its state"):
                flaw = self._flaw(name)
                if not flaw:
                    with self._folder.reading(name) as file:
                        value = self._unpickled(file, name)
                    _log.info("%s has loaded version %d of its state", self._owner, number)
                    return number, value
            text = f"{self._owner}: {self._folder}/{name} is passed over: {flaw}"
            if version is not None:
                raise StateError(text)
            _log.warning(text)
        return None

    def _names(self) -> dict[int, str]:
        """Return version → file name."""
        names: dict[int, str] = {}
        for name in self._folder.names():
            match = _NAME.fullmatch(name)
            if match is not None:
                names[int(match[1])] = name
        return names

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
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            hint = "; what was saved before is untouched" if "save" in action else ""
            room = " Make room, or save less often or less." if is_full else ""
            raise StateError(
                f"{self._owner} cannot {action} in {self._folder}: {why}{hint}.{room}"
            ) from error


class StatePickler(by_value.Pickler):
    """A pickler that saves the script's classes and functions with both their definition and their name."""

    into_main = True

    def reducer_override(self, obj: Any) -> Any:
        is_code = isinstance(obj, type | types.FunctionType)
        if is_code and obj.__module__ == "__main__" and by_value.is_named_in("__main__", obj):
            definition = by_value.dumps(obj, _PROTOCOL, into_main=True)
            return _defined_here_or, (obj.__qualname__, definition)
        return super().reducer_override(obj)


def _defined_here_or(name: str, definition: bytes) -> Any:
    """Return the script's current class or function of this name, or else the saved definition."""
    try:
        current = operator.attrgetter(name)(sys.modules["__main__"])
    except AttributeError:
        current = None
    is_of_script = getattr(current, "__module__", "") == "__main__"
    return current if is_of_script else pickle.loads(definition)


class _Hashed(io.RawIOBase):
    """A writer that passes data on to a file, and computes the data's hash."""

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
    hashed_file = _Hashed(file)
    StatePickler(hashed_file, protocol=_PROTOCOL).dump(value)
    file.write(hashed_file.trailer)


def _flaw_of(file: IO[bytes]) -> str:
    """Return the reason why this file is not a whole saved state, or "" if it is one."""
    size = file.seek(0, os.SEEK_END)
    if size < _TRAILER_BYTES:
        return f"its {size} bytes are no saved state"
    file.seek(size - _TRAILER_BYTES)
    trailer = file.read(_TRAILER_BYTES)
    if trailer[: len(_MAGIC)] != _MAGIC:
        return "it is torn, or something else has written it: its last bytes are not those of a saved state"
    file.seek(0)
    bytes_left = size - _TRAILER_BYTES
    content_hash = hashlib.blake2b(digest_size=_HASH_BYTES)
    while bytes_left:
        chunk = file.read(min(bytes_left, _CHUNK))
        # The file has become shorter since it was measured, so its hash will differ.
        if not chunk:
            break
        content_hash.update(chunk)
        bytes_left -= len(chunk)
    length = (size - _TRAILER_BYTES).to_bytes(8, "big")
    if trailer == _MAGIC + length + content_hash.digest():
        return ""
    return "it is damaged: its hash is another"
