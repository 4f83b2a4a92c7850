"""Events: reports about a worker, by its own code, by its process, or by the backend that started it.

    worker's code       context.link.report(…)    StopRequested · Waiting · Heartbeat ──┐
                                                  EndsWatched · BarrierReached, Left    │
                                                  Debugged                              │
                                                  Done · Bound · SpansRecorded          │
    worker itself       Worker.main               Ready · Returned · EdgesCounted       │
                                                  Heartbeat · WorkerNote · Ended ───────┤
    its backend         the code that starts it   ProcessStarted · Exiting · Ended      │
                                                  JobEnding ────────────────────────────┤
                                                                                        ▼
    Supervisor.on(event) ◀── Runner ◀── Backend.create_workers(…, report) ◀── thread, process, actor, pod

An event is the same object all the way: a process pickles it, a pod prints it as JSON. Two kinds go no
further than the backend. The backend passes `Bound` on to the other workers. And if a worker with its own
process reports `Ended`, the backend reports another `Ended`, with the exit status, to the supervisor.
"""

from __future__ import annotations

from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.telemetry.recording import Recorded
from launchpad.courier.telemetry.registry import Counted
from launchpad.outcome import Outcome
from launchpad.telemetry.process_usage import ProcessUsage


@dataclass(frozen=True)
class ProcessStarted:
    """The worker has its own process. Backends without processes on this host do not report it."""

    worker: str
    attempt: int
    pid: int


@dataclass(frozen=True)
class Ready:
    """The worker's object is built and served. `runs` is True if it now runs a function or `run()`."""

    worker: str
    attempt: int
    runs: bool


@dataclass(frozen=True)
class Done:
    """The worker's runs succeeded; it goes on serving, and the program does not wait for it."""

    worker: str
    attempt: int


@dataclass(frozen=True)
class Returned:
    """The worker's function or `run()` returned a value; not reported for None. See `results.py`.

    Attributes:
        body, buffers: The value, pickled.
        error: The reason why it could not be pickled; empty if it could.
    """

    worker: str
    attempt: int
    body: bytes = b""
    buffers: tuple[bytearray, ...] = ()
    error: str = ""

    @property
    def size(self) -> int:
        """The size of the pickled value in bytes."""
        return len(self.body) + sum(map(len, self.buffers))


@dataclass(frozen=True)
class Exiting:
    """The worker has done its work and releases what it holds; or it is closed, but its process still runs.

    Each of the two is reported once. Backends without processes do not report the second.

    Attributes:
        awaits: The reason why the worker has not ended yet; empty if it is not known.
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
    """The worker wants to be notified when attempts of other workers end."""

    worker: str
    attempt: int


@dataclass(frozen=True)
class BarrierReached:
    """The worker waits at its group's barrier of this name; `number` identifies the wait."""

    worker: str
    attempt: int
    name: str
    number: int


@dataclass(frozen=True)
class BarrierLeft:
    """The worker gave up waiting at a barrier, and wants to know which workers were absent."""

    worker: str
    attempt: int
    name: str
    number: int


@dataclass(frozen=True)
class Heartbeat:
    """The worker makes progress. `is_last` is True if its `run()` has ended, and it will send no more."""

    worker: str
    attempt: int
    is_last: bool = False


@dataclass(frozen=True)
class Debugged:
    """The worker entered or left the debugger. While it is there, deadlines are suspended.

    Attributes:
        what: The text shown to users while the worker is there; empty when it has left.
        is_waiting: True if the worker waits for `attach`, because it has failed or is at a `breakpoint()`.
    """

    worker: str
    attempt: int
    what: str = ""
    is_waiting: bool = False


@dataclass(frozen=True)
class EdgesCounted:
    """The worker's counts of the calls that it made and answered.

    Attributes:
        number: The number of the request that this answers; 0 if it was not requested.
        is_last: True if the worker's work has ended, so that no more counts follow.
        usage: The CPU and memory that its process uses; only in an answer to a request.
    """

    worker: str
    attempt: int
    number: int
    is_last: bool
    counted: Counted
    usage: ProcessUsage | None = None

    @property
    def order(self) -> tuple[bool, int]:
        """A key to sort counts by; greater for later counts."""
        return self.is_last, self.number


@dataclass(frozen=True)
class SpansRecorded:
    """The spans that the worker recorded on request.

    Attributes:
        number: The number of the request that this answers.
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
class JobEnding:
    """The cluster will end all workers soon, so the program should stop in order. It names any one worker."""

    worker: str
    reason: str


@dataclass(frozen=True)
class Ended:
    """The worker has ended, and none of its code runs any more. The supervisor gets exactly one per start."""

    outcome: Outcome


@dataclass(frozen=True)
class WorkerNote:
    """A message for the user that has no other effect: the disk of the worker's log is full, for instance."""

    worker: str
    text: str


@dataclass(frozen=True)
class Bound:
    """A server is bound, and its endpoint was not in the plan. The backend passes it on to other workers.

    `endpoints` has the endpoint for workers on its own host first, then those for workers on other hosts.
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
    | JobEnding
    | Ended
    | WorkerNote
    | Bound
)
