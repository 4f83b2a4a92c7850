"""The run context: the present worker's name, the endpoints of the others, and the stop event.

A thread's context is looked up in three places, so that it is found in any thread that user code starts:
its own, that of the thread that started it, that of the process.

    thread of a worker      ──▶ _here (ContextVar)          threads backend, colocated nodes
    a thread it started     ──▶ thread.launchpad_context    copied by `inherit()` when the thread starts
    any thread of a process ──▶ _process                    processes, one worker in each

The launching script has none of these: there, addresses are looked up among the programs it launched.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from launchpad.courier.protocol import handshake
from launchpad.courier.security import private_directory
from launchpad.errors import NotRunningError
from launchpad.events import Event, Waiting
from launchpad.interrupt import Interruption

_REPORT_AFTER_S = 1.0
_HANDLERS_S = 5.0
_RESOLVE_S, _POLL_S = 60.0, 0.01


@dataclass(eq=False)
class RunContext:
    """A worker's view of itself and of the program it runs in: `lp.current()`.

    Example:
        def run(self):
          me = lp.current()
          rng = random.Random(me.seed)
          print(f"{me.name} is {me.replica_index + 1} of {me.num_replicas}")

    Attributes:
        name: The worker's name, unique in the program: `actor-3`.
        label: Its group: `actor`.
        replica_index: Its number in the group, from 0.
        num_replicas: The size of the group.
        attempt: 1 at the first start, one more at each restart.
        seed: An integer below 2**32; the same for this worker at every launch, different between workers.
        launch_type: `local_mp` and the like.
        gpus: The devices that this worker may use, as in CUDA_VISIBLE_DEVICES.
    """

    program: str
    name: str
    label: str
    replica_index: int
    num_replicas: int
    attempt: int
    seed: int
    launch_type: str
    endpoints: Mapping[str, str]
    gpus: tuple[str, ...] = ()
    can_move: bool = False
    """Whether servers may move: then `endpoints` changes, and lacks those of servers that are not up yet."""
    listens_at: str = ""
    """Where servers listen for clients on other hosts, `tcp:10.0.0.5:0`; empty where there are none."""
    known_as: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Address → the endpoint that others connect to, where it differs from what its server listens at."""
    report: Callable[[Event], None] = field(repr=False, default=lambda event: None)
    """Reports an event of this worker to the supervisor."""
    state_path: str = field(default="", repr=False)
    phase: str = "import"
    stop_event: threading.Event = field(default_factory=threading.Event, repr=False)
    handles_stop: bool = False
    """Whether this worker's code watches for the stop; if it does, it is not interrupted."""
    interruption: Interruption = field(default_factory=Interruption, repr=False)
    parent: RunContext | None = field(default=None, repr=False)
    """The worker's context, in the context of one of several nodes in it."""
    _stop_handlers: list[Callable[[], None]] = field(default_factory=list, repr=False)
    _stop_lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _handlers_called: threading.Event = field(default_factory=threading.Event, repr=False)
    _gone: dict[str, str] = field(default_factory=dict, repr=False)
    _waiting_since: dict[str, float] = field(default_factory=dict, repr=False)

    def child(self, interruption: Interruption) -> RunContext:
        """The context of one of several nodes in this worker: stopped with it, but interrupted by itself."""
        parent = self.parent or self
        return replace(self, parent=parent, interruption=interruption, handles_stop=False)

    @property
    def state_dir(self) -> Path:
        """A directory of this worker's own that keeps its contents from one attempt to the next.

        Example:
            def run(self):
              checkpoint = lp.current().state_dir / "weights.npy"
              if checkpoint.exists():           # not the first attempt
                self.weights = np.load(checkpoint)

        It is kept with the run's logs when the program has ended. Write a file under another name, then
        `os.replace` it: this process may be killed at any time.

        Raises:
            PermissionError: another user could change what is in it, for instance a checkpoint that would be
                unpickled; the text names the directory for which that is so, and what to do.
        """
        path = Path(self.state_path)
        # With its parents: on another host than the launcher's they are not there yet.
        private_directory.make_private(path)
        return path

    def endpoint(self, address: str) -> str:
        """The endpoint of the address with this name, `unix:/run/…/learner-0.sock`.

        Where servers move it waits until that is known; a minute at most.
        """
        worker = address.partition("/")[0]
        deadline = time.monotonic() + _RESOLVE_S
        while not (endpoint := self.endpoints.get(address)):
            if not self.can_move:
                raise NotRunningError(
                    f"program {self.program!r} has no address {address!r}; it has {sorted(self.endpoints)}"
                )
            if time.monotonic() >= deadline:
                raise NotRunningError(
                    f"the endpoint of {address!r} was not known for {_RESOLVE_S:g} s: {worker} has not"
                    " started there, or waits for room. Call resolve() again if it may take longer."
                )
            if self.gone_reason(worker) or self.stop_event.is_set():
                why = self.gone_reason(worker) or f"{self.name} was asked to stop"
                raise NotRunningError(f"the endpoint of {address!r} is not known: {why}")
            time.sleep(_POLL_S)
        return endpoint

    def ask_to_stop(self) -> None:
        """Asks this worker to stop: the event is set, then the handlers are called.

        A handler that raises has its traceback printed, and the others are called all the same. A second
        call waits up to 5 s for the handlers: a worker does not end while they run.
        """
        with self._stop_lock:
            is_first = not self.stop_event.is_set()
            self.stop_event.set()
            handlers = list(self._stop_handlers)
        if not is_first:
            self._handlers_called.wait(_HANDLERS_S)
            return
        for handler in handlers:
            _call(handler)
        self._handlers_called.set()

    def add_stop_handler(self, handler: Callable[[], None]) -> None:
        """Calls `handler` once, when the program stops; at once if it is stopping already."""
        self.handles_stop = True
        with self._stop_lock:
            self._stop_handlers.append(handler)
            is_late = self.stop_event.is_set()
        if is_late:
            _call(handler)

    def remove_stop_handler(self, handler: Callable[[], None]) -> None:
        """Removes a handler; ValueError if it was never added."""
        self._stop_handlers.remove(handler)

    def mark_gone(self, worker: str, why: str) -> None:
        """Records that another worker failed or ended for good; with an empty `why`, that it is back."""
        self._gone[worker] = why

    def note_waiting(self, worker: str) -> None:
        """Reports, once a second, that a constructor waits for that worker: two may wait for each other."""
        if self.phase != "init":
            return
        now = time.monotonic()
        if now - self._waiting_since.setdefault(worker, now) > _REPORT_AFTER_S:
            self._waiting_since[worker] = now
            self.report(Waiting(self.name, worker))

    def gone_reason(self, worker: str) -> str:
        """Why that worker failed or ended for good; empty while it is not known to have."""
        return self._gone.get(worker, "")


def _call(handler: Callable[[], None]) -> None:
    try:
        handler()
    except BaseException:
        with contextlib.suppress(Exception):  # there may be no stderr any more
            traceback.print_exc()


_here: ContextVar[RunContext | None] = ContextVar("launchpad_context", default=None)
_process: RunContext | None = None


def try_current() -> RunContext | None:
    """The context of the worker that the calling thread belongs to; None outside workers."""
    return _here.get() or getattr(threading.current_thread(), "launchpad_context", None) or _process


def current() -> RunContext:
    """The context of the worker that the calling thread belongs to.

    Works in any thread of a worker, and in methods called by other nodes.

    Raises:
        NotRunningError: outside workers, for instance in the script that launches.
    """
    context = try_current()
    if context is None:
        raise NotRunningError(
            "lp.current() was called outside a running program. It works in code that a node runs;"
            " in the launching script use what lp.launch() returned."
        )
    return context


@contextlib.contextmanager
def entered(context: RunContext) -> Iterator[RunContext]:
    """Makes `context` the current one in this thread and in those started from it."""
    handshake.provide(_name)
    token = _here.set(context)
    try:
        yield context
    finally:
        _here.reset(token)


def enter_process(context: RunContext) -> None:
    """Makes `context` the one of this whole process: it runs one worker and nothing else."""
    global _process
    _process = context
    handshake.provide(_name)


def _name() -> str:
    """The name that clients send to servers in the handshake."""
    context = try_current()
    return "" if context is None else context.name


def belongs_to(thread: threading.Thread, context: RunContext) -> None:
    """Makes a thread that has not started, and those that it starts, the worker's with this context."""
    thread.__dict__["launchpad_context"] = context


def inherit() -> None:
    """Makes each thread that a worker's thread starts from now on belong to that worker.

    Python 3.14 can copy contexts into threads by itself; until then the start of a thread is the only
    place where both threads are known. Takes effect once in a process.
    """
    if getattr(threading.Thread.start, "launchpad_inherits", False):
        return
    start = threading.Thread.start

    @functools.wraps(start)
    def start_with_context(thread: threading.Thread, *args: Any, **kwargs: Any) -> None:
        thread.__dict__.setdefault("launchpad_context", try_current())
        start(thread, *args, **kwargs)

    start_with_context.launchpad_inherits = True  # type: ignore[attr-defined]
    threading.Thread.start = start_with_context  # type: ignore[method-assign,assignment]


@dataclass(frozen=True)
class LaunchedAddress:
    """The endpoint of an address, as known in the launching script or in a worker.

    Attributes:
        where: Returns the present endpoint.
        can_move: Whether the endpoint can change.
        worker: The worker that serves there.
        failure_check: Returns the error for clients if that worker has ended and does not serve any more.
    """

    where: Callable[[], str]
    can_move: bool
    worker: str
    failure_check: Callable[[], Exception | None]


launched: dict[str, LaunchedAddress] = {}
"""What the launching script can reach, in each program that it has launched and that still runs, by uid."""


@contextlib.contextmanager
def published(addresses: Mapping[str, LaunchedAddress]) -> Iterator[None]:
    """Makes these addresses, by uid, resolvable in this process outside workers while the block lasts.

    Those that another launch has published over meanwhile stay.
    """
    launched.update(addresses)
    try:
        yield
    finally:
        for uid, address in addresses.items():
            if launched.get(uid) is address:
                del launched[uid]
