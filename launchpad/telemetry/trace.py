"""A trace of a program for some seconds, as a picture: `running.trace()`, `python -m launchpad trace`.

    courier/telemetry/recording.py   each worker keeps its spans, as tuples
    launch/supervision/recordings.py the launcher gathers them
    Trace                            … and turns them into JSON, which https://ui.perfetto.dev shows

The format is Chrome's: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
Each worker is shown as a process, with a row for its state and a row for each of its threads. Events `X` are
spans, which nest in a row. `b` and `e` are the two ends of a span beside the row, such as a future. `s` and
`f` are the two ends of an arrow from a call to its answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.protocol.framing import BUILTIN_PREFIX
from launchpad.courier.telemetry.recording import (
    ANSWER,
    CALL,
    COROUTINE,
    FUTURE,
    SUBMIT,
    WAIT,
    Recorded,
    Span,
)

_CATEGORIES = {
    CALL: "call",
    SUBMIT: "submit",
    FUTURE: "future",
    ANSWER: "answer",
    COROUTINE: "coroutine",
    WAIT: "wait",
}
_BESIDE = (FUTURE, COROUTINE)
# No thread has this number.
_STATE_ROW = 0

Json = dict[str, Any]


class StateChange(NamedTuple):
    """A worker's change to a new state.

    Attributes:
        time_ns: When it happened, by the launcher's monotonic clock.
        why: How its attempt ended.
    """

    worker: str
    attempt: int
    state: str
    time_ns: int
    why: str


@dataclass(frozen=True)
class Trace:
    """A recording of what the workers of a program did for some seconds: `running.trace()`.

    Example:
        trace = running.trace(5)
        print(trace)                # how much there is, and what is missing
        trace.save("trace.json")    # open it at https://ui.perfetto.dev

    Attributes:
        program, run_id: The program and the run that were recorded.
        recorded: The spans, by worker and attempt. The launching script is `pid 4711`, attempt 0.
        changes: The workers' changes of state.
        missing: Worker and attempt without a recording → a sentence that says why.
        began_ns, ended_ns: Start and end of the recording, by the launcher's monotonic clock.
        clock_ns, wall_ns: One moment, by the launcher's monotonic clock and in ns since 1970.
        clock_id: The id of the launcher's monotonic clock.
    """

    program: str
    run_id: str
    recorded: Mapping[tuple[str, int], Recorded]
    changes: Sequence[StateChange]
    missing: Mapping[tuple[str, int], str]
    began_ns: int
    ended_ns: int
    clock_ns: int
    wall_ns: int
    clock_id: bytes

    @property
    def calls(self) -> int:
        """Number of calls that the workers and the script made in this time, recorded or not."""
        return sum(recorded.calls for recorded in self.recorded.values())

    @property
    def recorded_calls(self) -> int:
        """Number of calls that have a span."""
        return sum(map(_recorded_calls, self.recorded.values()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a file as JSON, for https://ui.perfetto.dev or chrome://tracing."""
        with open(path, "w", encoding="utf-8") as file:
            self.write(file)

    def write(self, file: IO[str]) -> None:
        """Write the trace to an open file as JSON."""
        file.write('{"traceEvents": [\n')
        file.write(",\n".join(json.dumps(event) for event in self.events()))
        about = {"displayTimeUnit": "ms", "otherData": self._about()}
        file.write("\n], " + json.dumps(about)[1:] + "\n")

    def events(self) -> list[Json]:
        """Return Chrome's events: first those that name rows, then the others by time."""
        names: list[Json] = []
        events: list[Json] = []
        calls: dict[int, Json] = {}
        answers: dict[int, Json] = {}
        workers = dict.fromkeys([*(c.worker for c in self.changes), *(w for w, _ in self.recorded)])
        for number, worker in enumerate(workers, 1):
            own = {a: r for (w, a), r in sorted(self.recorded.items()) if w == worker}
            names.append(_meta("process_name", number, name=worker))
            names.append(_meta("process_sort_index", number, sort_index=number))
            labels = [self._label(attempt, own) for attempt in own]
            labels += [f"missing: {why}" for (w, _), why in self.missing.items() if w == worker]
            names.append(_meta("process_labels", number, labels="; ".join(labels)))
            events += self._states(worker, number)
            if worker in {c.worker for c in self.changes}:
                names.append(_meta("thread_name", number, _STATE_ROW, name="state"))
                names.append(_meta("thread_sort_index", number, _STATE_ROW, sort_index=-1))
            for attempt, recorded in own.items():
                shift_ns = self._shift_ns(recorded)
                for thread in recorded.threads:
                    name = thread.name if len(own) == 1 else f"{thread.name} (attempt {attempt})"
                    names.append(_meta("thread_name", number, thread.id, name=name))
                    for span in thread.spans:
                        for event in self._span(span, number, thread.id, shift_ns):
                            events.append(event)
                            if event["ph"] == "X" and span[0] in (CALL, SUBMIT):
                                calls[span[5]] = event
                            elif event["ph"] == "X" and span[0] == ANSWER:
                                answers[span[5]] = event
        for number in calls.keys() & answers.keys():
            events += _flow(number, calls[number], answers[number])
        first = min((event["ts"] for event in events), default=0.0)
        if first < 0:
            # A host's clock is behind. Viewers drop events before 0, so all events move.
            for event in events:
                event["ts"] -= first
        return names + sorted(events, key=_order)

    def __str__(self) -> str:
        workers = {worker for worker, attempt in self.recorded if attempt}
        seconds = (self.ended_ns - self.began_ns) / 1e9
        s = "" if len(workers) == 1 else "s"
        text = (
            f"{self.program}, {seconds:.1f} s: {self.recorded_calls:,} of {self.calls:,} calls of"
            f" {len(workers)} worker{s} recorded"
        )
        dropped = sum(recorded.dropped for recorded in self.recorded.values())
        if dropped:
            text += f"; {dropped:,} spans had no room"
        restarts = sum(c.state == "restarting" for c in self.changes)
        if restarts:
            s = "" if restarts == 1 else "s"
            text += f"; {restarts} restart{s}"
        hosts = self._other_hosts()
        if hosts:
            text += f"; by the clocks of their hosts, which may differ: {', '.join(hosts)}"
        return text + "".join(f"\nmissing: {why}" for _, why in sorted(self.missing.items()))

    def _about(self) -> Json:
        return {
            "program": self.program,
            "run": self.run_id,
            "began_ns_since_1970": self.began_ns - self.clock_ns + self.wall_ns,
            "calls": self.calls,
            "recorded_calls": self.recorded_calls,
            "dropped_spans": sum(recorded.dropped for recorded in self.recorded.values()),
            "missing": [why for _, why in sorted(self.missing.items())],
            "hosts_whose_clocks_may_differ": self._other_hosts(),
        }

    def _label(self, attempt: int, own: Mapping[int, Recorded]) -> str:
        recorded = own[attempt]
        of_calls = f"{_recorded_calls(recorded):,} of {recorded.calls:,} calls"
        prefix = f"attempt {attempt}: " if len(own) > 1 else ""
        return f"{prefix}pid {recorded.pid} on {recorded.host}, {of_calls}"

    def _other_hosts(self) -> list[str]:
        return sorted({r.host for r in self.recorded.values() if not self._has_our_clock(r)})

    def _has_our_clock(self, recorded: Recorded) -> bool:
        return recorded.clock_id == self.clock_id and any(self.clock_id)

    def _shift_ns(self, recorded: Recorded) -> int:
        """Return the nanoseconds to add to this recording's times to get the launcher's monotonic clock.

        The result is zero on the launcher's host. For another host it follows from the wall clocks of both
        hosts.
        """
        if self._has_our_clock(recorded):
            return 0
        return (recorded.wall_ns - recorded.clock_ns) - (self.wall_ns - self.clock_ns)

    def _us(self, time_ns: int) -> float:
        """Return the time since the trace began, in microseconds."""
        return (time_ns - self.began_ns) / 1000

    def _span(self, span: Span, pid: int, tid: int, shift_ns: int) -> Iterator[Json]:
        kind, server, method, begin_ns, end_ns, number, why = span
        begin_ns = begin_ns + shift_ns
        end_ns = end_ns + shift_ns
        name = f"{server}/{method}" if server and kind not in (ANSWER, COROUTINE) else method
        args: Json = {"server": server} if server else {}
        if why:
            args["error"] = why
        event = {"name": name, "cat": _CATEGORIES[kind], "pid": pid, "tid": tid, "args": args}
        if kind in _BESIDE:
            # A local id keeps the span beside the rows of its worker.
            own = {"id2": {"local": f"{_CATEGORIES[kind]} {number:x}"}}
            yield {**event, **own, "ph": "b", "ts": self._us(begin_ns)}
            yield {**event, **own, "ph": "e", "ts": self._us(end_ns), "args": {}}
        else:
            yield {**event, "ph": "X", "ts": self._us(begin_ns), "dur": (end_ns - begin_ns) / 1000}

    def _states(self, worker: str, pid: int) -> Iterator[Json]:
        changes = [c for c in self.changes if c.worker == worker]
        ends = [*(c.time_ns for c in changes[1:]), self.ended_ns][: len(changes)]
        for change, end in zip(changes, ends, strict=True):
            event: Json = {"pid": pid, "tid": _STATE_ROW, "ts": self._us(change.time_ns)}
            args: Json = {"attempt": change.attempt}
            if change.why:
                args["why"] = change.why
            name = f"{change.state} (attempt {change.attempt})"
            duration = {"ph": "X", "dur": (end - change.time_ns) / 1000}
            yield {**event, **duration, "name": name, "cat": "state", "args": args}
            if change.why and change.time_ns != changes[0].time_ns:
                yield {**event, "ph": "i", "s": "p", "name": change.why, "cat": "state"}


def _recorded_calls(recorded: Recorded) -> int:
    ours = BUILTIN_PREFIX.decode()
    return sum(
        span[0] in (CALL, SUBMIT) and not span[2].startswith(ours)
        for thread in recorded.threads
        for span in thread.spans
    )


def _flow(number: int, call: Json, answer: Json) -> list[Json]:
    """Return the two ends of the arrow from the start of a call to the start of its method."""
    about = {"name": "call", "cat": "call", "id": number}
    return [
        {**about, "ph": "s", "pid": call["pid"], "tid": call["tid"], "ts": call["ts"]},
        {
            **about,
            "ph": "f",
            "bp": "e",
            "pid": answer["pid"],
            "tid": answer["tid"],
            "ts": answer["ts"],
        },
    ]


def _meta(kind: str, pid: int, tid: int = _STATE_ROW, **args: Any) -> Json:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _order(event: Json) -> tuple[float, float]:
    """Order events by time, and longer ones first, so that a span comes before those inside it."""
    return event["ts"], -event.get("dur", 0.0)
