"""Record the order in which a server runs its calls, and repeat that order when the program runs again.

    handle.through(lp.edges.Record("runs/a"))     the server writes  runs/a/<worker>.<attempt>.jsonl
                                                  in a MultiThreadingColocation each server has its own file:
                                                                   runs/a/<worker>.<number>.<attempt>.jsonl
    handle.through(lp.edges.Replay("runs/a"))     before each call the server waits until it is its turn

If several workers change one server, no two runs of the program are the same, because the calls arrive in a
different order each time. With the recorded order, two runs agree down to the last bit, unless something
else in the program depends on time or chance.

Rules:
1. The server runs one call at a time. A method must not wait for another call to this server, because that
   call can't begin. A call that has waited a minute for its turn fails, and its error names the call before
   it.
2. The recording lists calls of workers, by worker and method. The script's calls are not recorded. A call of
   the script runs when no other call does.
3. Coroutines are ordered by their beginnings: a coroutine's turn ends when it first waits for something, or
   returns. Streams are ordered by the calls that return them; the order of their items is not recorded.
4. A call that is cancelled before its turn is not recorded.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from launchpad.courier import caller
from launchpad.courier.interruptions import Condition
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.security import private_directory
from launchpad.errors import DefinitionError, ReplayError

_TURN_S = 60.0


@dataclass(frozen=True)
class Record:
    """A request that the server record the order of its calls, in a file of its own in this folder.

    It is enough to put `Record` on one handle, because it covers the calls of all workers through any handle.

    Example:
        parameters = program.add_node(lp.CourierNode(Parameters), label="parameters")
        recorded = parameters.through(lp.edges.Record("runs/a"))   # for the workers, in its place

    Args:
        folder: Created if it doesn't exist. On Ray and Kubernetes all hosts must share it.
    """

    folder: str | os.PathLike[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", os.path.abspath(self.folder))


@dataclass(frozen=True)
class Replay:
    """A request that the server run its calls in the order that `Record` wrote into this folder.

    It covers the calls of all workers, as `Record` does. Once the server has run all recorded calls, it runs
    others as they arrive. It doesn't notice if the program makes fewer calls than were recorded.

    A call fails with ReplayError if it doesn't occur in the rest of the recording, although the recording has
    calls of the same caller left. A server fails with ReplayError if the recording has no file for it,
    because the recorded server had fewer attempts or didn't exist.

    Example:
        parameters = program.add_node(lp.CourierNode(Parameters), label="parameters")
        replayed = parameters.through(lp.edges.Replay("runs/a"))   # for the workers, in its place

    Raises:
        DefinitionError: There is no recording in the folder.
    """

    folder: str | os.PathLike[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", os.path.abspath(self.folder))
        if not any(Path(self.folder).glob("*.jsonl")):
            raise DefinitionError(f"lp.edges.Replay: there is no recording in {self.folder}")


Ordering = Record | Replay


def order_of(ordering: Ordering, owner: str, attempt: int) -> CallOrder:
    """Return the recorder or replayer for the calls of a worker, or of one node in it, `learner-0.1`."""
    file = Path(ordering.folder) / f"{owner}.{attempt}.jsonl"
    return Recorder(file) if isinstance(ordering, Record) else Replayer(file)


class CallOrder(ABC):
    """A base class that lets one call run at a time, in an order that subclasses decide."""

    def __init__(self) -> None:
        # Notified when a call has ended its turn, and when one that waits for its turn is cancelled.
        self._changed = Condition()
        self._running: tuple[str, str] | None = None

    @abstractmethod
    def may_begin(self, name: str, method: str) -> bool:
        """Return True if it is this call's turn. Called while no other call runs."""

    @abstractmethod
    def begins(self, name: str, method: str) -> None:
        """Note that this call takes its turn and runs now."""

    @abstractmethod
    def why_not(self, name: str, method: str) -> str:
        """Return what this call waits for, as text for an error."""

    def close(self) -> None:
        """Close the recording. No call arrives after this."""
        return

    def wrapped(self, method: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method so that each call of it waits for its turn."""
        if inspect.iscoroutinefunction(fn):
            import asyncio

            @functools.wraps(fn)
            async def run_later(*args: Any, **kwargs: Any) -> Any:
                await self._turn_of(_name_of_caller(), method)
                # The loop runs this after the first step of `fn`: there the turn ends.
                asyncio.get_running_loop().call_soon(self._end)
                return await fn(*args, **kwargs)

            return run_later

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._begin(_name_of_caller(), method)
            try:
                return fn(*args, **kwargs)
            finally:
                self._end()

        return run

    def _begin(
        self, name: str, method: str, is_given_up: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait for the call's turn and take it. Return False if the call is given up before its turn."""

        def is_turn() -> bool:
            return self._running is None and (not name or self.may_begin(name, method))

        with self._changed:
            is_over = self._changed.wait_for(lambda: is_given_up() or is_turn(), _TURN_S)
            if is_given_up():
                return False
            if not is_over:
                busy = self._running
                why = f"{busy[0]}'s {busy[1]} still runs" if busy else self.why_not(name, method)
                raise ReplayError(
                    f"{method} of {name or 'a caller outside'} has waited {_TURN_S:g} s for its turn: {why}."
                    " A server with Record or Replay runs one call at a time: methods that wait for other"
                    " calls do not suit."
                )
            if name:
                self.begins(name, method)
            self._running = name or "a caller outside", method
            return True

    def _end(self) -> None:
        with self._changed:
            self._running = None
            self._changed.notify_all()

    async def _turn_of(self, name: str, method: str) -> None:
        """Wait for the call's turn in a separate thread, so that the event loop goes on."""
        import asyncio

        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()

        def begin() -> None:
            error: BaseException | None = None
            try:
                if not self._begin(name, method, turn.cancelled):
                    return
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(report, error)
            except RuntimeError:
                # The loop is closed, so the call has ended.
                if error is None:
                    self._end()

        def report(error: BaseException | None) -> None:
            if error is None and not turn.done():
                turn.set_result(None)
            elif error is None:
                # The call was cancelled just as the thread took its turn, so it gives the turn back.
                self._end()
            elif not turn.done():
                turn.set_exception(error)

        OwnThread(target=begin, name="launchpad-turn").start()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # The cancellation came when the turn, or an error, was on its way here. Give a turn back.
                if turn.exception() is None:
                    self._end()
            else:
                # Wake the thread, which then gives up.
                with self._changed:
                    self._changed.notify_all()
            raise


class Recorder(CallOrder):
    """A call order that writes each call to a file as it begins: one line with worker and method."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        private_directory.make_private(file.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file: IO[str] = open(os.open(file, flags, 0o600), "w", buffering=1)  # noqa: SIM115

    def may_begin(self, name: str, method: str) -> bool:
        return True

    def begins(self, name: str, method: str) -> None:
        self._file.write(json.dumps([name, method]) + "\n")

    def why_not(self, name: str, method: str) -> str:
        return "nothing"

    def close(self) -> None:
        self._file.close()


class Replayer(CallOrder):
    """A call order that lets calls begin in the order of a file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        try:
            text = file.read_text()
        except OSError as error:
            raise ReplayError(
                f"there is no recording {file}: {error.strerror}. What was recorded had no such worker, or"
                " did not start it so often."
            ) from error
        # If its writer was killed, the last line may be incomplete.
        whole_lines, _, _ = text.rpartition("\n")
        self._left = deque(
            (name, method) for name, method in map(json.loads, whole_lines.splitlines())
        )

    def may_begin(self, name: str, method: str) -> bool:
        if not self._left or self._left[0] == (name, method):
            return True
        if (name, method) not in self._left:
            next_method = next((call[1] for call in self._left if call[0] == name), None)
            if next_method is not None:
                raise ReplayError(
                    f"{name} calls {method}, which it does not any more in the recording {self._file}; there"
                    f" it goes on with {next_method}. The program, or something in it that depends on chance,"
                    " is another."
                )
        return False

    def begins(self, name: str, method: str) -> None:
        if self._left:
            self._left.popleft()

    def why_not(self, name: str, method: str) -> str:
        first = self._left[0]
        return f"in the recording {self._file} it is the turn of {first[0]}'s {first[1]}"


def _name_of_caller() -> str:
    """Return the name of the worker that makes this call, or "" if the caller isn't a worker."""
    call = caller.current.get()
    return call.peer.name if call is not None and call.peer.attempt else ""
