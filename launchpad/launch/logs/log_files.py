"""The log files of one run: their names, and how to read them.

    learner-0.log.1            the first part of the first attempt, full
    learner-0.log.2            its second part
    learner-0.log              the newest part, which is or was written to
    learner-0.attempt_2.log    the second attempt, after a restart

No worker has the name `learner-0.attempt_2`, since names of workers end with a dash and a number. Parts are
numbered from the oldest, so that no file is renamed twice. rotation.py makes them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from launchpad.courier.light_dataclass import dataclass

HEADER = b"--- launchpad: what came before is in "
"""The beginning of a part that has other parts before it. The name of the part before follows."""


_TAIL_BYTES = 16384


@dataclass(frozen=True)
class LogFiles:
    """The logs in one directory.

    Example:
        files = LogFiles(running.log_directory)
        print(files.text("learner-0"))            # all attempts, all parts
        print(last_lines(files.path("learner-0")))
    """

    directory: Path

    def path(self, worker: str, attempt: int = 1) -> Path:
        """Return the file for the output of one attempt of a worker."""
        suffix = "" if attempt == 1 else f".attempt_{attempt}"
        return self.directory / f"{worker}{suffix}.log"

    def attempts(self, worker: str) -> list[int]:
        """Return the numbers of the attempts that have left a log."""
        form = re.compile(re.escape(worker) + r"(?:\.attempt_(\d+))?\.log(?:\.\d+)?")
        matches = (form.fullmatch(name) for name in _names_in(self.directory))
        return sorted({int(match[1] or 1) for match in matches if match})

    def lines(self, worker: str) -> Iterator[str]:
        """Yield the lines of `text` one by one, since there may be gigabytes."""
        logs = [self.path(worker, attempt) for attempt in self.attempts(worker)]
        for part in (part for log in logs for part in parts(log)):
            with contextlib.suppress(OSError), part.open("rb") as file:
                for number, line in enumerate(file):
                    if number or not line.startswith(HEADER):
                        yield line.decode(errors="replace").rstrip("\r\n")

    def text(self, worker: str) -> str:
        """Return all that a worker has printed, in all attempts, as far as it is kept."""
        logs = [self.path(worker, attempt) for attempt in self.attempts(worker)]
        contents: list[bytes] = []
        for part in (part for log in logs for part in parts(log)):
            # On OSError, the part was just deleted or rotated. The next call finds a rotated part.
            with contextlib.suppress(OSError):
                contents.append(without_header(part.read_bytes()))
        return b"".join(contents).decode(errors="replace")


def parts(log: Path) -> list[Path]:
    """Return the files of one attempt, oldest first."""
    full = [log.with_name(f"{log.name}.{number}") for number in numbers(log)]
    return [*full, log] if log.exists() else full


def numbers(log: Path) -> list[int]:
    """Return the numbers of the parts that are full."""
    prefix = f"{log.name}."
    endings = (n.removeprefix(prefix) for n in _names_in(log.parent) if n.startswith(prefix))
    return sorted(int(ending) for ending in endings if ending.isdigit())


def without_header(beginning: bytes) -> bytes:
    """Return the beginning of a part without the header line."""
    return beginning.partition(b"\n")[2] if beginning.startswith(HEADER) else beginning


def last_lines(log: Path, count: int = 20) -> tuple[str, ...]:
    """Return the last lines of an attempt; none if there is no log."""
    lines: list[str] = []
    for part in reversed(parts(log)):
        try:
            with part.open("rb") as file:
                begin = max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
                file.seek(begin)
                end = file.read() if begin else without_header(file.read())
        except OSError:
            continue
        lines = [*end.decode(errors="replace").splitlines(), *lines]
        if len(lines) >= count:
            break
    return tuple(lines[-count:])


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
