"""The run context: who am I, where is everybody, and stop.

A worker's thread finds its context in three steps, so that it is found from any thread that user code
starts: what this thread was given; what the thread that started it had; what the process has.

    thread of a worker      ──▶ _here (ContextVar)          threads backend, colocated nodes
    a thread it started     ──▶ thread.launchpad_context    copied by `inherit()` when the thread starts
    any thread of a process ──▶ _process                    processes, one worker in each

A method of an in-process server may run in its caller's thread; `_here` then says whose server it is.

The launching script has none of these: there, addresses are looked up among the programs it launched.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from launchpad.courier import identity
from launchpad.courier.local import visit
from launchpad.errors import NotRunningError
from launchpad.interruption import Interruption

_WORTH_TELLING_S = 1.0
_HANDLERS_S = 5.0
_PLACED_S, _LOOK_S = 60.0, 0.01


@dataclass(eq=False)
class RunContext:
    """What a worker knows about itself and the program it runs in: `lp.current()`.

    Example:
      def run(self):
        me = lp.current()
        rng = random.Random(me.seed)
        print(f"{me.name} is {me.replica_index + 1} of {me.num_replicas}")

    Attributes:
      name: This worker, unique in the program: `actor-3`.
      label: Its group: `actor`.
      replica_index: Its number in the group, from 0.
      num_replicas: The size of the group.
      attempt: 1 at the first start, one more at each restart.
      seed: An integer below 2**32; the same for this worker at every launch, different between workers.
      launch_type: `local_mp` and the like.
      gpus: The devices that this worker may use, as they stand in CUDA_VISIBLE_DEVICES.
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
    moves: bool = False
    """Whether servers of this program may move: then `endpoints` changes, and lacks who is not up yet."""
    listens_at: str = ""
    """Where servers listen for those on other hosts, `tcp:10.0.0.5:0`; empty where there are none."""
    known_as: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Address → the name by which others find it, where that is not what its server listens at."""
    report: Callable[[str, str], None] = field(repr=False, default=lambda event, text: None)
    """Tells the supervisor: ("stop", why), ("waiting", worker), ("done", "") or ("bound", places)."""
    state_path: str = field(default="", repr=False)
    phase: str = "import"
    stop_event: threading.Event = field(default_factory=threading.Event, repr=False)
    heeds_stop: bool = False
    """Whether this worker asked about stopping at all; one that did is not interrupted."""
    interruption: Interruption = field(default_factory=Interruption, repr=False)
    whole: RunContext | None = field(default=None, repr=False)
    """The worker's context, in the context of a part of it."""
    _stop_handlers: list[Callable[[], None]] = field(default_factory=list, repr=False)
    _stop_lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _handlers_called: threading.Event = field(default_factory=threading.Event, repr=False)
    _gone: dict[str, str] = field(default_factory=dict, repr=False)
    _waiting_since: dict[str, float] = field(default_factory=dict, repr=False)

    def part(self, interruption: Interruption) -> RunContext:
        """The context of one of several nodes in this worker: stopped with it, but interrupted by itself."""
        whole = self.whole or self
        return replace(self, whole=whole, interruption=interruption, heeds_stop=False)

    @property
    def state_dir(self) -> Path:
        """A directory of this worker's own that the next attempt finds as this one has left it.

        Example:
          def run(self):
            checkpoint = lp.current().state_dir / "weights.npy"
            if checkpoint.exists():           # not the first attempt
              self.weights = np.load(checkpoint)

        It is kept with the run's logs when the program has ended. Write a file under another name, then
        `os.replace` it: this process may be killed at any time.
        """
        path = Path(self.state_path)
        path.mkdir(
            mode=0o700, parents=True, exist_ok=True
        )  # on another host nobody has made the run's
        return path

    def endpoint(self, address: str) -> str:
        """Where the address with this name is bound, `unix:/run/…/learner-0.sock`.

        Where servers move it waits until the place is known; no longer than a minute.
        """
        deadline = time.monotonic() + _PLACED_S
        while self.moves and not self.endpoints.get(address) and time.monotonic() < deadline:
            self._raise_if_never(address)
            time.sleep(_LOOK_S)
        if self.moves and not self.endpoints.get(address):
            worker = address.partition("/")[0]
            raise NotRunningError(
                f"for {_PLACED_S:g} s nobody has said where {address!r} is: {worker} has not started there,"
                " or waits for room. Call resolve() again if it may take longer."
            )
        if not self.endpoints.get(address):
            raise NotRunningError(
                f"program {self.program!r} has no address {address!r}; it has {sorted(self.endpoints)}"
            )
        return self.endpoints[address]

    def note_bound(self, address: str, endpoints: Sequence[str]) -> None:
        """A server has bound; where servers move, the others hear of it from the launcher."""
        if self.listens_at:
            self.report("bound", "\n".join((address, *endpoints)))

    def _raise_if_never(self, address: str) -> None:
        """There is no point in waiting for the place of a worker that has ended for good."""
        worker = address.partition("/")[0]
        if self.why_gone(worker) or self.stop_event.is_set():
            why = self.why_gone(worker) or f"{self.name} was asked to stop"
            raise NotRunningError(f"nobody knows where {address!r} is: {why}")

    def ask_to_stop(self) -> None:
        """What the supervisor does to this worker: the event is set, then the handlers are called.

        A handler that raises has its traceback printed, and the others are called all the same. Whoever
        comes second waits a while for the handlers: a worker does not end while they run.
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
        self.heeds_stop = True
        with self._stop_lock:
            self._stop_handlers.append(handler)
            is_late = self.stop_event.is_set()
        if is_late:
            _call(handler)

    def remove_stop_handler(self, handler: Callable[[], None]) -> None:
        """Takes a handler back; one that was never added is a ValueError."""
        self._stop_handlers.remove(handler)

    def mark_gone(self, worker: str, why: str) -> None:
        """What the supervisor tells this worker about another one, which failed or ended for good.

        Without a `why` the other one is back.
        """
        self._gone[worker] = why

    def note_waiting(self, worker: str) -> None:
        """A constructor waits for that worker; told every second, since two may wait for each other."""
        if self.phase != "init":
            return
        now = time.monotonic()
        if now - self._waiting_since.setdefault(worker, now) > _WORTH_TELLING_S:
            self._waiting_since[worker] = now
            self.report("waiting", worker)

    def why_gone(self, worker: str) -> str:
        """Why nobody answers for that worker any more; empty while nothing is known against it."""
        return self._gone.get(worker, "")


def _call(handler: Callable[[], None]) -> None:
    try:
        handler()
    except BaseException:
        with contextlib.suppress(Exception):  # there may be no stderr any more
            traceback.print_exc()


class _Nobody:
    """In the place of a context: this belongs to no worker, although the thread does."""


_NOBODY = _Nobody()
_here: ContextVar[RunContext | _Nobody | None] = ContextVar("launchpad_context", default=None)
_process: RunContext | None = None


def try_current() -> RunContext | None:
    """The context of the worker that this thread belongs to, or None outside workers."""
    here = _here.get()
    if here is None:
        return getattr(threading.current_thread(), "launchpad_context", None) or _process
    return None if isinstance(here, _Nobody) else here


def _surroundings() -> Context:
    """Where a server's methods run in threads of their callers: with whoever starts the server."""
    surroundings = Context()
    surroundings.run(_here.set, try_current() or _NOBODY)
    return surroundings


visit.provide(_surroundings)


def current() -> RunContext:
    """The context of the worker that this thread belongs to.

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
    identity.provide(_name)
    token = _here.set(context)
    try:
        yield context
    finally:
        _here.reset(token)


def enter_process(context: RunContext) -> None:
    """Makes `context` the one of this whole process: it runs one worker and nothing else."""
    global _process
    _process = context
    identity.provide(_name)


def _name() -> str:
    """What clients introduce themselves as to the servers that they call."""
    context = try_current()
    return "" if context is None else context.name


def inherit() -> None:
    """From now on a thread started by a worker's thread belongs to that worker.

    Python 3.14 can copy contexts into threads by itself; until then the start of a thread is the only
    place where both sides are known. Called once, by the first worker of a process that is a thread.
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
class Place:
    """Where an address is, as the launching script knows it.

    `where` says where that is now, and `moves` whether that can change. `verdict` tells clients when
    `worker` has ended and nobody answers there any more.
    """

    where: Callable[[], str]
    moves: bool
    worker: str
    verdict: Callable[[], Exception | None]


# What the launching script can reach: address uid → place, for each program that runs now.
_launched: dict[str, Place] = {}


def publish(places: Mapping[str, Place]) -> None:
    """Lets this process resolve these addresses (by uid) outside workers."""
    _launched.update(places)


def retract(places: Mapping[str, Place]) -> None:
    """Takes back what `publish` gave, unless another launch has published over it."""
    for uid, place in places.items():
        if _launched.get(uid) is place:
            del _launched[uid]


def published(uid: str) -> Place | None:
    """The place of an address in a program that this process launched and that still runs."""
    return _launched.get(uid)
