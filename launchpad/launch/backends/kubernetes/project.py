"""The user's project, as a zip that is the same for the same files: what pods import that no image has."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from launchpad.errors import DefinitionError
from launchpad.resources import in_words

_NOT_SENT = {"node_modules", "__pycache__"}
_OURS = __name__.partition(".")[0]
_ENDINGS = {".py", ".json", ".yaml", ".yml", ".toml", ".txt", ".csv", ".proto"}
_LARGEST_FILE = 256 << 10
_LARGEST = 8 << 20
_LISTED = 5


def zipped(folder: Path) -> bytes:
    """What of a folder this process has imported: modules, and packages whole with small data in them.

    Also the other modules beside these, which nobody may have imported yet; not launchpad, which is in the
    image.

    Raises:
      DefinitionError: it is too much; it lists the largest files.
    """
    files = {path.relative_to(folder): path.read_bytes() for path in _files(folder)}
    packed = _packed(files)
    if len(packed) > _LARGEST:
        largest = sorted(files, key=lambda path: -len(files[path]))[:_LISTED]
        listed = ", ".join(f"{path} {in_words(len(files[path]))}" for path in largest)
        raise DefinitionError(
            f"the project in {folder} takes {in_words(len(packed))}, more than the {in_words(_LARGEST)} that"
            f" are sent to pods. Its largest files: {listed}. Install it in the image, and launch with"
            " send_code=False"
        )
    return packed


def _packed(files: Mapping[Path, bytes]) -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in sorted(files.items()):
                archive.writestr(zipfile.ZipInfo(path.as_posix()), content)
        return file.getvalue()


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.glob("*.py")) if path.is_file())
    for name in sorted({name.partition(".")[0] for name in sys.modules} - {_OURS}):
        if (folder / name).is_dir():
            yield from _files_in(folder / name)


def _files_in(package: Path) -> Iterator[Path]:
    for path in sorted(package.iterdir()):
        if path.name.startswith(".") or path.name in _NOT_SENT or path.is_symlink():
            continue
        if path.is_dir():
            yield from _files_in(path)
        elif path.suffix in _ENDINGS and path.stat().st_size <= _LARGEST_FILE:
            yield path
