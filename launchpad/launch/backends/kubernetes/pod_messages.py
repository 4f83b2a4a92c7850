"""Messages between a pod and the launcher. They go through the cluster, since neither may reach the other.

    pod ── a line of its log that begins with MARK ────────▶ launcher     Ready, Done, Ended, …
    pod ── the termination message ────────────────────────▶ launcher     how it ended, if the log is lost
    launcher ── an annotation, which is a file in the pod ─▶ pod          stop for a restart, gone workers

All messages are JSON. If a line of the user's code begins with MARK, the pod puts another MARK before it, and
the launcher removes that again.
"""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from launchpad.courier import formatting
from launchpad.outcome import Outcome
from launchpad.runtime.events import (
    BarrierLeft,
    BarrierReached,
    Done,
    EdgesCounted,
    Ended,
    EndsWatched,
    Event,
    Exiting,
    Heartbeat,
    Ready,
    Returned,
    SpansRecorded,
    StopRequested,
    Waiting,
    WorkerNote,
)

MARK = b"\x1elaunchpad "

_PIECE = 3000
"""The most bytes of content in a line, because container runtimes cut long lines."""

MOST_BYTES = 4096
"""The limit of a termination message."""

MOST_RESULT_BYTES = 64 << 20
"""The limit of a result. A result goes through the log, one line for each piece, and through the cluster's
memory."""

_LOST_HINT = "Have it save what is large to a volume, and return the path."


@dataclass(frozen=True)
class PodCommands:
    """The commands for a pod. Each time, the launcher sends all of them.

    Attributes:
        restarts: True to stop the worker in order to restart it.
        kill: True to kill the worker, after it has written its stacks into its log.
        carries: True to send the state directory to the next attempt, because no volume keeps it.
        gone: Worker → the reason why it won't answer any more.
        watermarks: Name → a number that only grows.
        stacks: The number of requests for the worker's stacks so far.
        crash: True to kill the worker's process, in order to inject a fault.
        stop: For a launcher pod: True to stop the program; with `kill` at once.
        question: For a launcher pod: `id`, `method`, `arguments`. The pod answers with a Secret.
        repeats: The number of times that the same commands were sent again.
    """

    restarts: bool = False
    kill: bool = False
    carries: bool = True
    gone: Mapping[str, str] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    stacks: int = 0
    crash: bool = False
    stop: bool = False
    question: Mapping[str, Any] = field(default_factory=dict)
    repeats: int = 0

    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def parse_commands(text: str) -> PodCommands:
    """Return the commands in the annotation; the default ones if the annotation is empty."""
    data = json.loads(text) if text.strip() else {}
    field_names = {command.name for command in fields(PodCommands)}
    return PodCommands(**{name: value for name, value in data.items() if name in field_names})


def written(report: PodMessage) -> bytes:
    """Return the line with a report."""
    data = {"message": type(report).__name__, **asdict(report)}
    return MARK + json.dumps(data).encode() + b"\n"


@dataclass(frozen=True)
class Stacks:
    """The stacks of a worker's threads, in answer to request `number`."""

    number: int
    text: str


STATE = "state"
RESULT = "result"
EDGES = "edges"
SPANS = "spans"


@dataclass(frozen=True)
class Chunk:
    """A part of a content that is too long for one line, in base64.

    Attributes:
        of: The kind of content. STATE is the worker's packed state directory; RESULT, EDGES and SPANS are
            pickled events.
        count: The number of parts.
    """

    of: str
    index: int
    count: int
    content: str


PodMessage = Event | Stacks | Chunk

_MESSAGES: dict[str, Callable[..., PodMessage]] = {
    kind.__name__: kind
    for kind in (
        Ready,
        Done,
        Exiting,
        Waiting,
        EndsWatched,
        BarrierReached,
        BarrierLeft,
        Heartbeat,
        StopRequested,
        WorkerNote,
        Stacks,
        Chunk,
    )
}
_MESSAGES[Ended.__name__] = lambda outcome: Ended(outcome_of(outcome))


def report_in(line: bytes) -> PodMessage | None:
    """Return the report in a line; None if it is a line of the user's code."""
    if not line.startswith(MARK) or line.startswith(MARK * 2):
        return None
    try:
        data = json.loads(line.removeprefix(MARK))
        return _MESSAGES[data.pop("message")](**data)
    except (ValueError, KeyError, TypeError):
        return None


def chunks(of: str, content: bytes) -> list[Chunk]:
    """Split a content into messages, none of them too long for a line."""
    pieces = [content[i : i + _PIECE] for i in range(0, len(content), _PIECE)]
    return [
        Chunk(of, i, len(pieces), base64.b64encode(piece).decode())
        for i, piece in enumerate(pieces)
    ]


def joined(pieces: Sequence[Chunk]) -> bytes:
    """Return the content of these messages; empty if one of them is missing."""
    contents = {piece.index: piece.content for piece in pieces}
    if not pieces or set(contents) != set(range(pieces[0].count)):
        return b""
    return b"".join(base64.b64decode(contents[i]) for i in range(len(contents)))


LargeEvent = Returned | EdgesCounted | SpansRecorded


def event_chunks(event: LargeEvent) -> list[Chunk]:
    """Return the messages with an event that may be large. A result that is too large becomes an error."""
    content = zlib.compress(pickle.dumps(event, protocol=5), 1)
    if isinstance(event, EdgesCounted):
        return chunks(EDGES, content)
    if isinstance(event, SpansRecorded):
        return chunks(SPANS, content)
    result = event
    if len(content) > MOST_RESULT_BYTES:
        why = (
            f"{result.worker} returned {formatting.size(len(content))}, compressed; from a pod come"
            f" {formatting.size(MOST_RESULT_BYTES)} at most. Have it save what is larger, and return where"
            " that is."
        )
        content = zlib.compress(pickle.dumps(Returned(result.worker, result.attempt, error=why)))
    return chunks(RESULT, content)


def event_in(pieces: Sequence[Chunk]) -> LargeEvent | None:
    """Return the event in these messages: for a broken result an error, for another broken event None."""
    try:
        event: LargeEvent = pickle.loads(zlib.decompress(joined(pieces)))
    except Exception as error:  # a line was changed, or belongs to another event
        if pieces[0].of != RESULT:
            return None
        text = f"what it returned did not arrive whole: {error}. {_LOST_HINT}"
        return Returned("", 0, error=text)
    return event


def lost_result(worker: str, attempt: int, pieces: Sequence[Chunk]) -> Returned:
    """Return the error to report instead of a result of which only these messages arrived."""
    why = (
        f"of what {worker} returned, {len(pieces)} of {pieces[0].count} lines of its pod's log have"
        f" arrived. {_LOST_HINT}"
    )
    return Returned(worker, attempt, error=why)


def escaped(line: bytes) -> bytes:
    """Return a line of the user's code, marked so that it can't be taken for a message."""
    return MARK + line if line.startswith(MARK) else line


def unescaped(line: bytes) -> bytes:
    """Return the line as the user's code has printed it."""
    return line.removeprefix(MARK) if line.startswith(MARK * 2) else line


def termination_message(outcome: Outcome) -> bytes:
    """Return an outcome as JSON, short enough for a termination message. The traceback is cut first."""
    for most in (2000, 800, 200, 0):
        traceback = outcome.traceback
        if len(traceback) > most:
            traceback = f"… {traceback[len(traceback) - most :]}" if most else ""
        short = replace(
            outcome,
            traceback=traceback,
            hint=outcome.hint[:most],
            cause=outcome.cause[: max(most, 200)],
            last_lines=(),
        )
        text = json.dumps(asdict(short)).encode()
        if len(text) <= MOST_BYTES:
            return text
    return json.dumps({"worker": outcome.worker, "kind": outcome.kind}).encode()


def outcome_in(message: str) -> Outcome | None:
    """Return the outcome in a termination message; None if another program has written the message."""
    try:
        return outcome_of(json.loads(message))
    except (ValueError, KeyError, TypeError):
        return None


def outcome_of(data: Mapping[str, Any]) -> Outcome:
    """Return the outcome that was sent as JSON."""
    values: dict[str, Any] = {f.name: data[f.name] for f in fields(Outcome) if f.name in data}
    values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return Outcome(**values)
