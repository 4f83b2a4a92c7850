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
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeVar, overload

from launchpad.courier import caller
from launchpad.courier.caller import Peer
from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import NotRunningError
from launchpad.runtime.addresses import KnownAddresses
from launchpad.runtime.interrupt import Interruption
from launchpad.runtime.link import SupervisorLink
from launchpad.runtime.stop import ExitHandlers, StopSignal
from launchpad.state.own_state import OwnState

_State = TypeVar("_State")


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
    link: SupervisorLink = field(repr=False)
    state: OwnState = field(repr=False)
    addresses: KnownAddresses = field(default_factory=KnownAddresses, repr=False)
    gpus: tuple[str, ...] = ()
    part: str = ""
    """Which of several nodes in the worker it is of, as `.0`."""
    stop: StopSignal = field(default_factory=StopSignal, repr=False)
    exits: ExitHandlers = field(default_factory=ExitHandlers, repr=False)

    def __post_init__(self) -> None:
        # What waits for watermarks has nothing to wait for any more once the worker stops.
        self.stop.call_at_stop(self.link.watermarks.wake)

    def child(self, index: int, interruption: Interruption) -> RunContext:
        """Return the context of one of several nodes in this worker.

        It is stopped with it, but interrupted by itself, and what it saves is its own, files included.
        """
        return replace(
            self,
            part=f"{self.part}.{index}",
            state=self.state.child(index),
            stop=self.stop.child(interruption),
            exits=ExitHandlers(),
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
        with self.state.saved_states() as states:
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
        # In a test there is no place, so there is nothing in it.
        if version is None and not self.state.places.saved:
            return default
        with self.state.saved_states() as states:
            saved = states.load(version)
        return default if saved is None else saved[1]

    def saved_versions(self) -> list[int]:
        """The numbers of what was saved and is whole, the last one last."""
        if not self.state.places.saved:
            return []
        with self.state.saved_states() as states:
            return states.versions()

    @property
    def is_resumed(self) -> bool:
        """True if it goes on from an earlier attempt, or, by `launch(state=…)`, from an earlier launch."""
        return self.attempt > 1 or self.state.has_earlier()

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
        return self.state.directory()

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
        return self.state.group_directory(self.launch_type)


_here: ContextVar[RunContext | None] = ContextVar("launchpad_context", default=None)
_process: RunContext | None = None


def try_current() -> RunContext | None:
    """The context of the worker that the calling thread belongs to; None outside workers."""
    return _here.get() or getattr(threading.current_thread(), "launchpad_context", None) or _process


def is_stopping() -> bool:
    """True if the worker that the calling thread belongs to was asked to stop."""
    me = try_current()
    return me is not None and me.stop.event.is_set()


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
    """True if this worker has its process to itself, but for threads of its own."""
    return _process is not None and context.link is _process.link


def _peer() -> Peer | None:
    """Return what clients say of themselves to servers, in the handshake."""
    context = try_current()
    return None if context is None else context.link.peer


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
