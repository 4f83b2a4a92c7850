"""Letters: what a pod and the launcher tell each other by way of the cluster, as neither may reach the other.

    pod ── a line of its log that begins with MARK ────────▶ launcher     Ready, Done, Ended, …
    pod ── the termination message ────────────────────────▶ launcher     how it ended, should the log be lost
    launcher ── an annotation, which is a file in the pod ─▶ pod          stop for a restart, who is gone

All of it is JSON. A line of the user's that begins with MARK gets another MARK before it, and loses it again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from launchpad.errors import LaunchError, ProgramFailed
from launchpad.launch.backend import Done, Ended, Noted, Ready, Report, StopRequested, Waiting
from launchpad.outcome import Outcome

MARK = b"\x1elaunchpad "

_PIECE = 3000
"""Bytes in a line: what runs the containers cuts long ones."""

_LINE_BYTES = 12_000
"""The longest that comes by itself; what runs the containers cuts lines of 16 KiB."""

_LEAST = 500
"""Characters of a cause for which there is hardly room."""

_FEW = 4
"""Failures that are told; the others are in the log."""

MOST_BYTES = 4096
"""The length that a termination message may have."""


@dataclass(frozen=True)
class Wishes:
    """What a pod is to do; all of it, each time.

    Attributes:
      restarts: Stop, in order to be started again.
      kill: End it, with its stacks in its log.
      carries: Its state directory is to be handed on: no volume keeps it.
      gone: Worker → why nobody answers for it any more.
      stacks: How often its stacks were asked for.
      crash: Its process is to be killed, as chance would.
      stop: For a supervisor: the program is to stop; with `kill` at once.
      repeats: How often it was said again, with nothing new.
    """

    restarts: bool = False
    kill: bool = False
    carries: bool = True
    gone: Mapping[str, str] = field(default_factory=dict)
    stacks: int = 0
    crash: bool = False
    stop: bool = False
    repeats: int = 0

    def with_those_of(self, other: Wishes) -> Wishes:
        """Both, where each wishes for what a supervisor does."""
        stop, kill = self.stop or other.stop, self.kill or other.kill
        return replace(self, stop=stop, kill=kill, stacks=max(self.stacks, other.stacks))

    def text(self) -> str:
        """As it is written in the annotation."""
        return json.dumps(asdict(self), sort_keys=True)


def wishes_in(text: str) -> Wishes:
    """What the annotation says; nothing where it is empty."""
    told = json.loads(text) if text.strip() else {}
    known = {each.name for each in fields(Wishes)}
    return Wishes(**{name: value for name, value in told.items() if name in known})


def written(report: Letter) -> bytes:
    """The line that carries a report."""
    told = {"letter": type(report).__name__, **asdict(report)}
    return MARK + json.dumps(told).encode() + b"\n"


@dataclass(frozen=True)
class Stacks:
    """What the worker's threads are doing, as was asked; `number`: how often it was asked for."""

    worker: str
    number: int
    text: str


@dataclass(frozen=True)
class Baggage:
    """A part of what a worker has left in its state directory, as text: base64. `count`: of how many."""

    worker: str
    index: int
    count: int
    content: str


@dataclass(frozen=True)
class Begun:
    """A supervisor has launched its program. `record`: what there is to know of the run, but its workers."""

    record: Mapping[str, Any]


@dataclass(frozen=True)
class Over:
    """A supervisor's program has ended.

    Attributes:
      failures: The first of them is their cause.
      why: What else has ended it badly.
      states: How they ended → workers.
    """

    program: str
    failures: tuple[Outcome, ...] = ()
    why: str = ""
    states: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def failure(self) -> ProgramFailed | LaunchError | None:
        """The same as what is raised; None if it has ended well."""
        if self.failures:
            first, *others = self.failures
            return ProgramFailed(self.program, first, tuple(others))
        return LaunchError(self.why) if self.why else None

    def state_of(self, worker: str) -> str:
        """How a worker ended."""
        return next((state for state, those in self.states.items() if worker in those), "ended")

    def short(self) -> Over:
        """As much of it as a line may have."""
        least = replace(self._shorter(0), why=self.why[-_LEAST:], states={})
        tries = [self, *(self._shorter(most) for most in (2000, 800, 200)), self._shorter(0)]
        return next((each for each in tries if len(written(each)) <= _LINE_BYTES), least)

    def _shorter(self, most: int) -> Over:
        few = (replace(_shortened(each, most), earlier=()) for each in self.failures[:_FEW])
        return replace(self, failures=tuple(few), why=_end_of(self.why, 2000))


Letter = Report | Stacks | Baggage | Begun | Over

_LETTERS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Ready, Done, Waiting, StopRequested, Noted, Stacks, Baggage, Begun)
}


def report_in(line: bytes) -> Letter | None:
    """The report that a line carries; None if it is a line of the user's."""
    if not line.startswith(MARK) or line.startswith(MARK * 2):
        return None
    try:
        told = json.loads(line.removeprefix(MARK))
        return _letter(told.pop("letter"), told)
    except (ValueError, KeyError, TypeError):
        return None


def _letter(kind: str, told: dict[str, Any]) -> Letter:
    if kind == Ended.__name__:
        return Ended(_outcome(told["outcome"]))
    if kind == Over.__name__:
        return Over(**{**told, "failures": tuple(map(_outcome, told["failures"]))})
    letter: Letter = _LETTERS[kind](**told)
    return letter


def baggage_of(worker: str, content: bytes) -> list[Baggage]:
    """The letters that carry it, none of them too long for a line."""
    pieces = [content[i : i + _PIECE] for i in range(0, len(content), _PIECE)]
    return [
        Baggage(worker, i, len(pieces), base64.b64encode(piece).decode())
        for i, piece in enumerate(pieces)
    ]


def joined(pieces: Sequence[Baggage]) -> bytes:
    """What so many letters have carried; nothing if one of them is missing."""
    found = {piece.index: piece.content for piece in pieces}
    if not pieces or set(found) != set(range(pieces[0].count)):
        return b""
    return b"".join(base64.b64decode(found[i]) for i in range(len(found)))


def escaped(line: bytes) -> bytes:
    """A line of the user's, which must not be taken for one of ours."""
    return MARK + line if line.startswith(MARK) else line


def unescaped(line: bytes) -> bytes:
    """The line as the user has printed it."""
    return line.removeprefix(MARK) if line.startswith(MARK * 2) else line


def last_words(ended: Outcome) -> bytes:
    """How an attempt ended, short enough for a termination message: the traceback is cut first."""
    for most in (2000, 800, 200, 0):
        text = json.dumps(asdict(_shortened(ended, most))).encode()
        if len(text) <= MOST_BYTES:
            return text
    return json.dumps({"worker": ended.worker, "kind": ended.kind}).encode()


def outcome_in(message: str) -> Outcome | None:
    """What a termination message says; None if it was not written by us."""
    try:
        return _outcome(json.loads(message))
    except (ValueError, KeyError, TypeError):
        return None


def _outcome(told: Mapping[str, Any]) -> Outcome:
    known = {each.name: told[each.name] for each in fields(Outcome) if each.name in told}
    lists: dict[str, Any] = {k: tuple(v) for k, v in known.items() if isinstance(v, list)}
    return Outcome(**{**known, **lists})


def _shortened(ended: Outcome, most: int) -> Outcome:
    return replace(
        ended,
        traceback=_end_of(ended.traceback, most),
        hint=ended.hint[:most],
        cause=ended.cause[: max(most, 200)],
        last_lines=(),
    )


def _end_of(text: str, most: int) -> str:
    return text if len(text) <= most else f"… {text[len(text) - most :]}" if most else ""
