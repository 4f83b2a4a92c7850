"""The user's project and a worker's state directory, as archives for pods.

The project is a zip with all modules that pods import and no image has. The same files always give the same
zip. A state directory is a tar, which is sent from one attempt to the next, in another pod:

    pod ── as messages, when the worker has ended ──▶ launcher ── as Secrets ──▶ the next pod

This needs a pod that outlives its worker. If the pod is deleted, or its node dies, the state is lost. If the
user has mounted a volume at the state directory, launchpad leaves the volume alone.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from launchpad.courier import formatting
from launchpad.courier.security import private_directory
from launchpad.errors import DefinitionError

_NOT_SENT = {"node_modules", "__pycache__"}
_OURS = __name__.partition(".")[0]
_ENDINGS = {".py", ".json", ".yaml", ".yml", ".toml", ".txt", ".csv", ".proto"}
_LARGEST_FILE = 256 << 10
_LARGEST = 8 << 20
_LISTED = 5

MOST_BYTES = 8 << 20
"""The limit of a state directory. A larger one needs a volume."""


def zipped(folder: Path) -> bytes:
    """Return a zip of what this process imported from a folder: modules, and packages with their small data.

    The zip also has all other modules of the folder itself, which may not be imported yet. It doesn't have
    launchpad, which is in the image.

    Raises:
        DefinitionError: the zip is too large; the text lists the largest files.
    """
    paths = [path for path in sorted(folder.glob("*.py")) if path.is_file()]
    for name in sorted({name.partition(".")[0] for name in sys.modules} - {_OURS}):
        if (folder / name).is_dir():
            paths += _files_in(folder / name)
    files = {path.relative_to(folder): path.read_bytes() for path in paths}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path.as_posix()), content)
    data = file.getvalue()
    if len(data) > _LARGEST:
        largest = sorted(files, key=lambda path: -len(files[path]))[:_LISTED]
        listed = ", ".join(f"{path} {formatting.size(len(files[path]))}" for path in largest)
        raise DefinitionError(
            f"the project in {folder} takes {formatting.size(len(data))}, more than the"
            f" {formatting.size(_LARGEST)} that are sent to pods. Its largest files: {listed}. Install it in"
            " the image, and launch with send_code=False"
        )
    return data


def _files_in(package: Path) -> Iterator[Path]:
    for path in sorted(package.iterdir()):
        if path.name.startswith(".") or path.name in _NOT_SENT or path.is_symlink():
            continue
        if path.is_dir():
            yield from _files_in(path)
        elif path.suffix in _ENDINGS and path.stat().st_size <= _LARGEST_FILE:
            yield path


def is_empty(folder: Path) -> bool:
    """Return True if a folder is empty, or does not exist."""
    return not folder.is_dir() or not any(folder.iterdir())


def packed(folder: Path) -> bytes:
    """Return a folder's files as a tar; empty if there are no files. Raise OSError if they can't be read."""
    if is_empty(folder):
        return b""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=".")
    return file.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Extract the files of a tar into a folder."""
    private_directory.make_private(folder)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
