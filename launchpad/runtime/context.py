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
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from launchpad.courier import caller, fork
from launchpad.courier.caller import Peer
from launchpad.courier.interruptions import Lock
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.security import private_directory
from launchpad.errors import NotRunningError
from launchpad.restart_policy import NO_RESTARTS, RestartPolicy
from launchpad.runtime.events import EndsWatched, Event, Heartbeat, Waiting
from launchpad.runtime.interrupt import Interruption
from launchpad.runtime.watermarks import ENDED, Watermarks
from launchpad.state.fence import Fence
from launchpad.state.places import StatePlaces

if TYPE_CHECKING:
    from launchpad.state.saved_states import SavedStates

_State = TypeVar("_State")

_REPORT_AFTER_S = 1.0
_HANDLERS_S = 5.0
_RESOLVE_S, _POLL_S = 60.0, 0.01
_BEATS = 5  # within the time in which one has to come: some may be late


def _new_lock() -> Lock:
    return fork.free_in_child(Lock())


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
    restart: RestartPolicy = field(default=NO_RESTARTS, repr=False)
    """What its group's policy is."""
    ordering: Any = field(default=None, repr=False)
    """How the calls of its server are ordered, `edges.Record` or `Replay`; None: as they come."""
    state_places: StatePlaces = field(default=StatePlaces("", ""), repr=False)
    fence: Fence = field(default_factory=Fence, repr=False)
    """Closed when this attempt has ended, though threads of it may go on: it saves nothing more."""
    phase: str = "import"
    stop_event: threading.Event = field(default_factory=threading.Event, repr=False)
    handles_stop: bool = False
    """Whether this worker's code watches for the stop; if it does, it is not interrupted."""
    incarnation: bytes = field(default_factory=lambda: os.urandom(16), repr=False)
    """Random for each attempt; tells servers which of them calls."""
    interruption: Interruption = field(default_factory=Interruption, repr=False)
    watermarks: Watermarks = field(default_factory=Watermarks, repr=False)
    """What the supervisor tells this worker."""
    crash: Callable[[str], None] = field(repr=False, default=lambda why: None)
    """Makes this attempt a failure, from a thread that is not the worker's own, where it is a thread."""
    parent: RunContext | None = field(default=None, repr=False)
    """The worker's context, in the context of one of several nodes in it."""
    part: str = ""
    """Which of several nodes in the worker it is of, as `.0`."""
    _stop_handlers: list[Callable[[], None]] = field(default_factory=list, repr=False)
    _exit_handlers: list[Callable[[], object]] = field(default_factory=list, repr=False)
    is_inherited: bool = field(default=False, repr=False)
    """Whether this is a forked child of the worker: the supervisor neither hears it nor tells it anything."""
    _stop_lock: Lock = field(default_factory=_new_lock, repr=False)
    _state_lock: Lock = field(default_factory=_new_lock, repr=False)
    _handlers_called: threading.Event = field(default_factory=threading.Event, repr=False)
    _gone: dict[str, str] = field(default_factory=dict, repr=False)
    _waiting_since: dict[str, float] = field(default_factory=dict, repr=False)
    _has_earlier: bool | None = field(default=None, repr=False)
    _last_beat: float = field(default=0.0, repr=False)
    _watches_ends: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        fork.call_in_child(self, type(self)._drop_inherited)

    def _drop_inherited(self) -> None:
        """Remember, in a forked child of the worker, that it is one."""
        self.is_inherited = True

    def refuse_in_child(self, what: str, hint: str) -> None:
        """Refuse what can't work in a forked child of the worker.

        Raises:
            NotRunningError: this is one.
        """
        if self.is_inherited:
            raise NotRunningError(
                f"{what} works in the worker itself, and {fork.describe_child()}, {self.name}. {hint}"
            )

    def end_if_child(self, error: BaseException | None) -> None:
        """Ends this process where it is a forked child of the worker, which has left the worker's code.

        Only the parent goes on from here: it reports how the worker has ended, and closes what that serves.
        """
        if not self.is_inherited:
            return
        code: object = None
        if isinstance(error, SystemExit):
            code = error.code
        elif error is not None:
            code = 1
            with contextlib.suppress(Exception):
                traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))

    def child(self, index: int, interruption: Interruption) -> RunContext:
        """The context of one of several nodes in this worker.

        It is stopped with it, but interrupted by itself, and what it saves is its own, files included.
        """
        parent, places = self.parent or self, self.state_places
        own, saved = (place and f"{place}/{index}" for place in (places.own, places.saved))
        places = replace(places, own=own, saved=saved)
        return replace(
            self,
            parent=parent,
            part=f"{self.part}.{index}",
            interruption=interruption,
            handles_stop=False,
            state_places=places,
            _has_earlier=None,
            _state_lock=_new_lock(),
            _exit_handlers=[],
        )

    def save(self, state: object, *, version: int | None = None, keep: int = 2) -> int:
        """Saves what this worker needs to go on from here, durably, and returns when that is done.

        Its next attempt finds it by `load`; so does the next launch, if this one was given `state=`. Anything
        that can be pickled will do, also objects of classes that the script defines. What was saved before
        stays until this is on the disk: a worker that is killed meanwhile loses nothing. From any thread.

        Example:
            def run(self):
              step, weights = lp.current().load(default=(0, initial_weights()))
              while step < 1000:
                step, weights = step + 1, update(weights)
                if step % 100 == 0:
                  lp.current().save((step, weights))

        Args:
            version: Its number; one more than the last by default. Saved versions above it are deleted: where
                several workers go back to a step that all have saved, later ones mean nothing any more.
            keep: How many versions stay, this one included.

        Returns:
            The number of this version.

        Raises:
            StateError: it could not be written: the disk is full, say. What was saved is untouched.
            Exception: what pickling it raised.
        """
        with self.saved_states() as states:
            return states.save(state, version, keep)

    @overload
    def load(self, default: None = None, *, version: int | None = None) -> Any: ...

    @overload
    def load(self, default: _State, *, version: int | None = None) -> _State: ...

    def load(self, default: Any = None, *, version: int | None = None) -> Any:
        """What was saved last, by an earlier attempt or launch or this one; `default` if nothing was.

        A file that is torn, or that something else has written, is named in the log, and the one before is
        taken.

        Args:
            version: Its number, where it is not to be the last.

        Raises:
            StateError: it cannot be read or unpickled, or there is no such version.
        """
        if version is None and not self.state_places.saved:
            return default  # in a test: there is no place, so nothing in it
        with self.saved_states() as states:
            found = states.load(version)
        return default if found is None else found[1]

    def saved_versions(self) -> list[int]:
        """The numbers of what was saved and is whole, the last one last."""
        if not self.state_places.saved:
            return []
        with self.saved_states() as states:
            return states.versions()

    @contextlib.contextmanager
    def saved_states(self, *, of_object: bool = False) -> Iterator[SavedStates]:
        """What was saved, for one thread at a time; `of_object`: what the object's own `save()` gave."""
        from launchpad.state.saved_states import SavedStates

        self._looks_back()
        place = self._place(self.state_places.saved)
        with self._state_lock:
            yield SavedStates(self.name, f"{place}/object" if of_object else place, self.fence)

    @property
    def is_resumed(self) -> bool:
        """Whether it goes on from an earlier attempt, or, by `launch(state=…)`, from an earlier launch."""
        return self.attempt > 1 or self._looks_back()

    @property
    def state_dir(self) -> Path:
        """A directory of this worker's own that keeps its contents from one attempt to the next.

        Example:
            def run(self):
              checkpoint = lp.current().state_dir / "weights.npy"
              if checkpoint.exists():           # not the first attempt
                self.weights = np.load(checkpoint)

        It is kept with the run's logs when the program has ended, or in the folder of `launch(state=…)`. If
        that is a URL it stays beside the logs: the next launch does not find what is in it. `save` and `load`
        are for values; here are files. Write one under another name, then `os.replace` it: this process may
        be killed at any time.

        Raises:
            PermissionError: another user could change what is in it, for instance a checkpoint that would be
                unpickled; the text names the directory for which that is so, and what to do.
        """
        self._looks_back()
        path = Path(self._place(self.state_places.own))
        # With its parents: on another host than the launcher's they are not there yet.
        private_directory.make_private(path)
        return path

    def _looks_back(self) -> bool:
        """Whether an earlier launch has left anything; as it was when this was called first."""
        if self._has_earlier is None:
            self._has_earlier = False
            if self.state_places.is_kept:
                from launchpad.state.folder import folder_of

                places = {self.state_places.own, self.state_places.saved} - {""}
                with contextlib.suppress(OSError):  # which is raised where they are used
                    self._has_earlier = any(folder_of(place).names() for place in places)
        return self._has_earlier

    def _place(self, place: str) -> str:
        if not place:
            why = (
                f"no state_dir beside {self.state_places.saved}: name a folder, no URL"
                if self.state_places.saved
                else "no place for state: give one"
            )
            raise NotRunningError(
                f"{self.name} has {why}, `with lp.testing.worker(state=tmp_path):`"
            )
        return place

    @property
    def group_dir(self) -> Path:
        """A directory that all workers of this group have, kept as `state_dir` is: for files they exchange.

        Example:
            np.save(lp.current().group_dir / f"shard-{lp.current().replica_index}.npy", shard)

        With a URL as `launch(state=…)` the next launch does not find what is in it either.

        Raises:
            NotRunningError: its hosts may share none: on Ray and Kubernetes name one, a path, by
                `launch(state=…)`.
            PermissionError: as for `state_dir`.
        """
        if not self.state_places.group:
            raise NotRunningError(
                f"{self.name} has no group_dir: on {self.launch_type} the workers of a group may be on"
                " different hosts. Name a folder that all of them have: lp.launch(program, state='/shared/a')"
            )
        path = Path(self.state_places.group)
        private_directory.make_private(path)
        return path

    def endpoint(self, address: str) -> str:
        """The endpoint of the address with this name, `unix:/run/…/learner-0.sock`.

        Where servers move it waits until that is known; a minute at most.

        Raises:
            NotRunningError: there is no such address, its worker has ended, or the minute is over.
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
        self.watermarks.wake()  # what waits there has nothing to wait for any more
        for handler in handlers:
            _call(handler)
        self._handlers_called.set()

    def give_up(self) -> None:
        """Sets the event and calls no handler: the worker is given up, and waits for none."""
        self.stop_event.set()
        self._handlers_called.set()

    def add_stop_handler(self, handler: Callable[[], None]) -> None:
        """Calls `handler` once, when the program stops; at once if it is stopping already."""
        self.handles_stop = True
        self.call_at_stop(handler)

    def call_at_stop(self, handler: Callable[[], None]) -> None:
        """The same for what wakes waits of ours: the worker is interrupted as if there were none."""
        with self._stop_lock:
            self._stop_handlers.append(handler)
            is_late = self.stop_event.is_set()
        if is_late:
            _call(handler)

    def remove_stop_handler(self, handler: Callable[[], None]) -> None:
        """Removes a handler; ValueError if it was never added."""
        self._stop_handlers.remove(handler)

    def add_exit_handler(self, handler: Callable[[], object]) -> None:
        """Calls `handler` when this attempt has ended in good order."""
        self._exit_handlers.append(handler)

    def drop_exit_handlers(self) -> None:
        """Forgets those that have not been called, and will not be."""
        self._exit_handlers.clear()

    def call_exit_handlers(self, call: Callable[[Callable[[], object]], object]) -> None:
        """Calls the exit handlers, the last one first; also those that are given meanwhile.

        One that raises keeps no other from being called.

        Args:
            call: Calls one of them.

        Raises:
            BaseException: what the first of those that raise has raised; of the others it is printed.
        """
        error: BaseException | None = None
        while self._exit_handlers:
            handler = self._exit_handlers.pop()
            try:
                call(handler)
            except BaseException as raised:
                if error is None:
                    error = raised
                else:
                    traceback.print_exception(raised)
        if error is not None:
            raise error

    def mark_gone(self, worker: str, why: str) -> None:
        """Records that another worker failed or ended for good; with an empty `why`, that it is back."""
        self._gone[worker] = why

    def has_ended(self, worker: str, attempt: int) -> bool:
        """Whether this attempt of another worker has ended, as far as the supervisor has announced it.

        It is asked to do so when this is called first: from then on it is known soon after.
        """
        if not self._watches_ends:
            self._watches_ends = True
            self.report(EndsWatched(self.name, self.attempt))
        return 0 < attempt <= self.watermarks.get(f"{ENDED}{worker}")

    def watch_ends(self, callback: Callable[[str, int], None]) -> None:
        """Calls back with each worker and attempt that has ended, in a thread of launchpad's."""
        self.watermarks.on_growth(ENDED, callback)
        self.has_ended("", 0)  # from now on the supervisor announces it

    @property
    def peer(self) -> Peer:
        """What servers know of this worker when it calls them."""
        return Peer(self.name, self.attempt, self.incarnation)

    def heartbeat(self) -> None:
        """Says that this worker makes progress, where its policy has `heartbeat_s`: `lp.heartbeat()`."""
        within_s = self.restart.heartbeat_s
        if within_s is not None:
            me, now = self.parent or self, time.monotonic()
            if now - me._last_beat >= within_s / _BEATS:
                me._last_beat = now
                me.report(Heartbeat(me.name, me.attempt))

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

    Example:
        with open(f"{lp.current().name}.csv", "a") as file:      # each worker has its own
            print("step,loss", file=file)

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
    caller.provide(_peer)
    token = _here.set(context)
    try:
        yield context
    finally:
        _here.reset(token)


def enter_process(context: RunContext) -> None:
    """Makes `context` the one of this whole process: it runs one worker and nothing else."""
    global _process
    _process = context
    caller.provide(_peer)


def is_a_process(context: RunContext) -> bool:
    """Whether this worker has its process to itself, but for threads of its own."""
    return _process is not None and (context.parent or context) is _process


def _peer() -> Peer | None:
    """What clients say of themselves to servers, in the handshake."""
    context = try_current()
    return None if context is None else context.peer


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
