"""Events: what is reported of a worker, by its own code, by its process, or by what started it.

    worker's code          context.link.report(…)   StopRequested · Waiting · Heartbeat ─────┐
                                               EndsWatched · BarrierReached, Left       │
                                               Debugged                                 │
                                               Done · Bound · SpansRecorded             │
    worker, on its way     Worker.main         Ready · Returned · EdgesCounted          │
                                               Heartbeat · WorkerNote · Ended ──────────┤
    what starts it         its backend         ProcessStarted · Exiting · Ended ────────┤
                                                                                        ▼
    Supervisor.on(event) ◀── Runner ◀── Backend.create_workers(…, report) ◀── thread, process, actor, pod

An event is the same object all the way: a process pickles it, a pod prints it as JSON. Two kinds go no
further than the backend: `Bound`, which it passes on to the other workers, and the `Ended` that a worker with
a process of its own reports; the one that the supervisor receives has the exit status, too.
"""

from __future__ import annotations

from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.telemetry.recording import Recorded
from launchpad.courier.telemetry.registry import Counted
from launchpad.outcome import Outcome
from launchpad.telemetry.process_usage import ProcessUsage


@dataclass(frozen=True)
class ProcessStarted:
    """The worker has a process of its own. Backends without processes on this host do not report it."""

    worker: str
    attempt: int
    pid: int


@dataclass(frozen=True)
class Ready:
    """The worker's object is built and served. `runs`: whether it now runs something of its own."""

    worker: str
    attempt: int
    runs: bool


@dataclass(frozen=True)
class Done:
    """What the worker had to run has ended well; it goes on serving, and the program does not wait for it."""

    worker: str
    attempt: int


@dataclass(frozen=True)
class Returned:
    """What the worker had to run has returned a value; not reported for None. See `results.py`.

    Attributes:
        body, buffers: The value, pickled.
        error: Why it cannot be had; empty if it can.
    """

    worker: str
    attempt: int
    body: bytes = b""
    buffers: tuple[bytearray, ...] = ()
    error: str = ""

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.body) + sum(map(len, self.buffers))


@dataclass(frozen=True)
class Exiting:
    """The worker's work is done; it lets go of what it holds, or is closed and its process still runs.

    Reported once for each of these; backends without processes do not report the second.

    Attributes:
        awaits: What the end of the worker waits for; empty if it is not known.
    """

    worker: str
    attempt: int
    awaits: str = ""


@dataclass(frozen=True)
class Waiting:
    """The worker's constructor has been waiting for a server of worker `on` for over a second."""

    worker: str
    on: str


@dataclass(frozen=True)
class EndsWatched:
    """The worker wants to be told when attempts of others end."""

    worker: str
    attempt: int


@dataclass(frozen=True)
class BarrierReached:
    """The worker waits at the barrier of its group with this name; `number` is of its waiting."""

    worker: str
    attempt: int
    name: str
    number: int


@dataclass(frozen=True)
class BarrierLeft:
    """The worker waits there no longer, and wants to know who was absent."""

    worker: str
    attempt: int
    name: str
    number: int


@dataclass(frozen=True)
class Heartbeat:
    """The worker makes progress. `is_last`: its `run()` has ended, and it sends no more."""

    worker: str
    attempt: int
    is_last: bool = False


@dataclass(frozen=True)
class Debugged:
    """The worker is in a debugger, or no longer: until then nothing else is expected of it.

    Attributes:
        what: What a user reads of it; empty: no longer.
        is_waiting: Whether it waits for `attach`, since it has failed or is at a `breakpoint()`.
    """

    worker: str
    attempt: int
    what: str = ""
    is_waiting: bool = False


@dataclass(frozen=True)
class EdgesCounted:
    """What the worker has counted of its calls, and of those that it has answered.

    Attributes:
        number: Which request it answers; 0 for none.
        is_last: Whether its work has ended, so that there will be no more.
        usage: What its process uses, in an answer to a request.
    """

    worker: str
    attempt: int
    number: int
    is_last: bool
    counted: Counted
    usage: ProcessUsage | None = None

    @property
    def order(self) -> tuple[bool, int]:
        """Greater for what was counted later."""
        return self.is_last, self.number


@dataclass(frozen=True)
class SpansRecorded:
    """What the worker has done while it recorded it, as it was asked to.

    Attributes:
        number: Which request it answers.
    """

    worker: str
    attempt: int
    number: int
    recorded: Recorded


@dataclass(frozen=True)
class StopRequested:
    """Code in the worker called `lp.stop()`."""

    worker: str
    reason: str = ""


@dataclass(frozen=True)
class Ended:
    """The worker has ended; nothing of it runs any more. The supervisor gets exactly one for each start."""

    outcome: Outcome


@dataclass(frozen=True)
class WorkerNote:
    """A message for the user that changes nothing else: its log's disk is full, for instance."""

    worker: str
    text: str


@dataclass(frozen=True)
class Bound:
    """A server has bound, and its endpoint was not in the plan; the backend passes it on to other workers.

    `endpoints`: for workers on its own host, then for those on others.
    """

    worker: str
    attempt: int
    address: str
    endpoints: tuple[str, ...]


Event = (
    ProcessStarted
    | Ready
    | Returned
    | Done
    | Exiting
    | Waiting
    | EndsWatched
    | BarrierReached
    | BarrierLeft
    | Heartbeat
    | EdgesCounted
    | SpansRecorded
    | Debugged
    | StopRequested
    | Ended
    | WorkerNote
    | Bound
)
