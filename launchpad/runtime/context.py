"""The run context: the current worker's name, the endpoints of the others, and the stop event.

A thread's context is looked up in three places, so that any thread that user code starts finds it: in the
thread itself, in the thread that started it, and in the process.

    thread of a worker      ──▶ _here (ContextVar)          threads backend, colocated nodes
    a thread it started     ──▶ thread.launchpad_context    copied by `inherit()` when the thread starts
    any thread of a process ──▶ _process                    processes, one worker in each

The launching script has none of these. It looks up addresses among the programs that it launched.
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
from launchpad.courier.explained import Explained
from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import NotRunningError
from launchpad.runtime.addresses import KnownAddresses
from launchpad.runtime.interrupt import Interruption
from launchpad.runtime.link import SupervisorLink
from launchpad.runtime.stop import ExitHandlers, StopSignal
from launchpad.state.own_state import OwnState

_State = TypeVar("_State")


@dataclass(eq=False)
class RunContext(Explained):
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
        attempt: 1 at the first start, plus 1 at each restart.
        seed: An integer below 2**32, the same for this worker at every launch, different between workers.
        launch_type: The launch type, such as `local_mp`.
        gpus: The devices that this worker may use, as in CUDA_VISIBLE_DEVICES.
    """

    _other_names = "launchpad.other_names:CONTEXT"

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
    """The number of the node in the worker, such as `.0`; empty unless there are several."""
    stop: StopSignal = field(default_factory=StopSignal, repr=False)
    exits: ExitHandlers = field(default_factory=ExitHandlers, repr=False)

    def __post_init__(self) -> None:
        # Threads that wait for watermarks must see the stop, so wake them.
        self.stop.call_at_stop(self.link.watermarks.wake)

    def child(self, index: int, interruption: Interruption) -> RunContext:
        """Return the context of one of several nodes in this worker.

        The node stops together with the worker, but it is interrupted separately, and its saved state and
        files are its own.
        """
        return replace(
            self,
            part=f"{self.part}.{index}",
            state=self.state.child(index),
            stop=self.stop.child(interruption),
            exits=ExitHandlers(),
        )

    def save(self, state: object, *, version: int | None = None, keep: int = 2) -> int:
        """Save the state from which this worker can go on, and return when the state is stored durably.

        The next attempt reads the state with `load`. So does the next launch, if this one was given `state=`.
        The state can be anything that can be pickled, including objects of classes that the script defines.
        The earlier version stays until this one is on disk, so a worker that is killed while it saves loses
        nothing. Call it from any thread.

        Example:
            def run(self):
              step, weights = lp.current().load(default=(0, initial_weights()))
              while step < 1000:
                step, weights = step + 1, update(weights)
                if step % 100 == 0:
                  lp.current().save((step, weights))

        Args:
            version: The number of this version; by default one more than the last. Versions above it are
                deleted, because they are obsolete if several workers go back to a step that all have saved.
            keep: The number of versions to keep, including this one.

        Returns:
            The number of this version.

        Raises:
            StateError: the state could not be written, for example because the disk is full. Earlier versions
                are untouched.
            Exception: the error that pickling the state raised.
        """
        with self.state.saved_states() as states:
            return states.save(state, version, keep)

    @overload
    def load(self, default: None = None, *, version: int | None = None) -> Any: ...

    @overload
    def load(self, default: _State, *, version: int | None = None) -> _State: ...

    def load(self, default: Any = None, *, version: int | None = None) -> Any:
        """Return the state that was saved last, by this or an earlier attempt or launch; else `default`.

        If a file is incomplete, or something else wrote it, the log names the file, and the version before it
        is used.

        Args:
            version: The number of the version to load instead of the last.

        Raises:
            StateError: the state cannot be read or unpickled, or there is no such version.
        """
        # In a test there is no place for saved state, so nothing was saved.
        if version is None and not self.state.places.saved:
            return default
        with self.state.saved_states() as states:
            saved = states.load(version)
        return default if saved is None else saved[1]

    def saved_versions(self) -> list[int]:
        """Return the numbers of the saved versions that are complete, the last one last."""
        if not self.state.places.saved:
            return []
        with self.state.saved_states() as states:
            return states.versions()

    @property
    def is_resumed(self) -> bool:
        """True if the worker continues an earlier attempt or, with `launch(state=…)`, an earlier launch."""
        return self.attempt > 1 or self.state.has_earlier()

    @property
    def state_dir(self) -> Path:
        """This worker's own directory. It keeps its contents from one attempt to the next.

        Example:
            def run(self):
              checkpoint = lp.current().state_dir / "weights.npy"
              if checkpoint.exists():           # not the first attempt
                self.weights = np.load(checkpoint)

        After the program has ended, the directory stays with the run's logs, or in the folder of
        `launch(state=…)`. If that folder is a URL, the directory stays beside the logs, and the next launch
        doesn't find its contents. Use `save` and `load` for values, and this directory for files. Write a
        file under another name, then `os.replace` it, because this process may be killed at any time.

        Raises:
            PermissionError: another user could change its contents, for instance a checkpoint that would be
                unpickled; the text names the directory at fault, and says what to do.
        """
        return self.state.directory()

    @property
    def group_dir(self) -> Path:
        """The directory in which the workers of this group share files. It is kept as long as `state_dir`.

        Example:
            np.save(lp.current().group_dir / f"shard-{lp.current().replica_index}.npy", shard)

        If `launch(state=…)` is a URL, the next launch doesn't find its contents either.

        Raises:
            NotRunningError: the hosts may not share a directory. On Ray and Kubernetes, pass the path of a
                shared directory to `launch(state=…)`.
            PermissionError: as for `state_dir`.
        """
        return self.state.group_directory(self.launch_type)


_here: ContextVar[RunContext | None] = ContextVar("launchpad_context", default=None)
_process: RunContext | None = None


def try_current() -> RunContext | None:
    """Return the context of the worker that the calling thread belongs to; None outside workers."""
    return _here.get() or getattr(threading.current_thread(), "launchpad_context", None) or _process


def is_stopping() -> bool:
    """Return True if the worker that the calling thread belongs to was asked to stop."""
    me = try_current()
    return me is not None and me.stop.event.is_set()


def current() -> RunContext:
    """Return the context of the worker that the calling thread belongs to.

    Works in any thread of a worker, and in methods that other nodes call.

    Example:
        with open(f"{lp.current().name}.csv", "a") as file:      # each worker has its own
            print("step,loss", file=file)

    Raises:
        NotRunningError: called outside a worker, for instance in the launching script.
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
    """Make `context` the current one in this thread, and in the threads that it starts."""
    caller.provide(_peer)
    token = _here.set(context)
    try:
        yield context
    finally:
        _here.reset(token)


def enter_process(context: RunContext) -> None:
    """Make `context` the context of this whole process, which runs one worker and nothing else."""
    global _process
    _process = context
    caller.provide(_peer)


def is_a_process(context: RunContext) -> bool:
    """Return True if this worker has its process to itself."""
    return _process is not None and context.link is _process.link


def _peer() -> Peer | None:
    """Return the identity that clients send to servers in the handshake."""
    context = try_current()
    return None if context is None else context.link.peer


def belongs_to(thread: threading.Thread, context: RunContext) -> None:
    """Make a thread that has not started, and the threads that it starts, belong to this context's worker."""
    thread.__dict__["launchpad_context"] = context


def inherit() -> None:
    """Make each thread that a worker's thread starts from now on belong to that worker.

    Python 3.14 can copy contexts into threads by itself. Before that, the start of a thread is the only place
    where both threads are known. A second call in the same process has no effect.
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
        where: Returns the current endpoint.
        can_move: True if the endpoint can change.
        worker: The worker that serves there.
        failure_check: Returns the error for clients if that worker has ended and no longer serves, else None.
    """

    where: Callable[[], str]
    can_move: bool
    worker: str
    failure_check: Callable[[], Exception | None]


launched: dict[str, LaunchedAddress] = {}
"""Uid → the address, for all addresses of running programs that the launching script launched."""


@contextlib.contextmanager
def published(addresses: Mapping[str, LaunchedAddress]) -> Iterator[None]:
    """Make code outside workers in this process resolve these addresses, by uid, during the block.

    The end of the block leaves addresses alone that another launch has replaced in the meantime.
    """
    launched.update(addresses)
    try:
        yield
    finally:
        for uid, address in addresses.items():
            if launched.get(uid) is address:
                del launched[uid]
