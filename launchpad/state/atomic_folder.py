"""Folders for saved states, in a local directory or in an object store that fsspec opens.

A local directory is refused if another user could change it, because unpickling its files runs code.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

from launchpad.courier.security import private_directory
from launchpad.errors import StateError, Stopped
from launchpad.state.fence import AttemptId, Fence
from launchpad.state.places import is_url

_BUFFER = 1 << 20
_BEING_WRITTEN = ".being-written-"
_ATTEMPT = ".attempt.json"
"""The file with the latest attempt that has begun."""
_SHOWN = 60
"""The most bytes of a file that an error shows."""


def folder_of(place: str, fence: Fence | None = None) -> Folder:
    """Return the folder at a path or a URL. Each write there passes the fence."""
    fence = fence or Fence()
    return RemoteFolder(place, fence) if is_url(place) else LocalFolder(Path(place), fence)


class Folder(ABC):
    """A folder of files that are written whole or not at all. Methods raise OSError."""

    fence: Fence

    def begin(self) -> None:
        """Write the number of this attempt into the folder, so that earlier attempts save nothing more.

        The first attempt of a run writes nothing: there is no earlier one.

        Raises:
            Stopped: a later attempt has begun.
        """
        self.check()
        own = self.fence.attempt
        if own is None or own.number == 1:
            return
        if self._latest_attempt() != own:
            with self.writing(_ATTEMPT) as file:
                file.write(json.dumps(own._asdict()).encode())

    def has_content(self) -> bool:
        """Return True if there is any file that users or their objects have saved."""
        return any(name != _ATTEMPT for name in self.names())

    def check(self) -> None:
        """Raise Stopped if this attempt has ended, as far as can be known here."""
        self.fence.check()
        own = self.fence.attempt
        if own is not None:
            latest = self._latest_attempt()
            if latest is not None and own.is_followed_by(latest):
                raise Stopped

    def _latest_attempt(self) -> AttemptId | None:
        """Return the attempt that has begun last; None if only first attempts have.

        Raises:
            OSError: the file can't be read, or something else has written it.
        """
        try:
            with self.reading(_ATTEMPT) as file:
                content = file.read()
        except FileNotFoundError:
            return None
        try:
            fields = json.loads(content)
            return AttemptId(str(fields["run_id"]), int(fields["number"]))
        except (ValueError, TypeError, KeyError) as error:
            # If this were taken for no attempt, one on a host that was cut off could save beside the next.
            raise OSError(
                f"the file {_ATTEMPT} there should say which attempt is the latest, and contains"
                f" {content[:_SHOWN]!r}. Delete it when no worker of an earlier launch runs any more"
            ) from error

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def reading(self, name: str) -> AbstractContextManager[IO[bytes]]: ...

    @abstractmethod
    def writing(
        self, name: str, instead_of: Sequence[str] = ()
    ) -> AbstractContextManager[IO[bytes]]:
        """Open a file to write. It gets its name when the block ends, and only if the block doesn't raise.

        The files `instead_of` are deleted after the new file is completely written and before it gets its
        name. So a write that fails deletes nothing, and the new file never exists beside one of them.

        Raises:
            Stopped: The fence is closed. Nothing was changed.
        """

    @abstractmethod
    def remove(self, name: str) -> None: ...


class LocalFolder(Folder):
    """A folder in a local directory, which need not exist yet."""

    def __init__(self, path: Path, fence: Fence) -> None:
        self._path = path
        self.fence = fence

    def __str__(self) -> str:
        return str(self._path)

    def names(self) -> list[str]:
        if not self._path.exists():
            return []
        with self._opened() as folder:
            return os.listdir(folder)

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        with self._opened() as folder:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            with open(os.open(name, flags, dir_fd=folder), "rb") as file:
                yield file

    @contextlib.contextmanager
    def writing(self, name: str, instead_of: Sequence[str] = ()) -> Iterator[IO[bytes]]:
        with self._opened() as folder:
            with self.fence.lock:
                self.check()
                # An attempt that was killed while it wrote may have left such a file.
                for leftover in os.listdir(folder):
                    if leftover.startswith(_BEING_WRITTEN):
                        self.remove(leftover)
            aside = f"{_BEING_WRITTEN}{os.getpid()}-{os.urandom(4).hex()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                with open(os.open(aside, flags, 0o600, dir_fd=folder), "wb", _BUFFER) as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                with self.fence.lock:
                    self.check()
                    for old_name in instead_of:
                        self.remove(old_name)
                    if instead_of:
                        os.fsync(folder)
                    os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(aside, dir_fd=folder)
                raise
            os.fsync(folder)

    def remove(self, name: str) -> None:
        with self._opened() as folder, contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        folder = private_directory.open_private(self._path, make=True, close_to_others=True)
        try:
            yield folder
        finally:
            os.close(folder)


class RemoteFolder(Folder):
    """A folder in an object store, opened by fsspec. An object appears only once all of it is sent."""

    def __init__(self, url: str, fence: Fence) -> None:
        self._url = url
        self.fence = fence
        self._files, self._path = filesystem_of(url)

    def __str__(self) -> str:
        return self._url

    def names(self) -> list[str]:
        self._files.invalidate_cache()
        try:
            paths: list[str] = self._files.ls(self._path, detail=False)
        except FileNotFoundError:
            return []
        return [path.rpartition("/")[2] for path in paths]

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        # Another host may have written the file since the store's names were listed here.
        self._files.invalidate_cache()
        with self._files.open(f"{self._path}/{name}", "rb") as file:
            yield file

    @contextlib.contextmanager
    def writing(self, name: str, instead_of: Sequence[str] = ()) -> Iterator[IO[bytes]]:
        target = f"{self._path}/{name}"
        sent_as = f"{self._path}/{_BEING_WRITTEN}"
        # Nothing is sent until all of the value has been pickled.
        with tempfile.TemporaryFile() as aside:
            yield aside
            aside.seek(0)
            with self.fence.lock:
                self.check()
                self._files.makedirs(self._path, exist_ok=True)
                with self._files.open(sent_as, "wb") as file:
                    shutil.copyfileobj(aside, file, _BUFFER)
                # Sending may take minutes, in which the next attempt may have begun on another host.
                self.check()
                for old_name in instead_of:
                    self.remove(old_name)
                self._files.mv(sent_as, target)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(f"{self._path}/{name}")


def filesystem_of(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Raises:
        StateError: fsspec, or what it needs for this kind of URL, is not installed here.
    """
    try:
        import fsspec

        files, path = fsspec.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise StateError(
            f"state={url!r}: {error}. URLs are opened by fsspec: pip install fsspec, and what it needs for"
            " this kind (s3fs for s3://, gcsfs for gs://), here and where workers run"
        ) from error
    return files, str(path).rstrip("/")
