"""The order in which a server has run its calls: recorded once, and kept to when the program runs again.

    handle.through(lp.edges.Record("runs/a"))     the server writes  runs/a/<worker>.<attempt>.jsonl
                                                  in a MultiThreadingColocation each its own, by its number:
                                                                   runs/a/<worker>.<number>.<attempt>.jsonl
    handle.through(lp.edges.Replay("runs/a"))     before each call the server waits until it is its turn

A program in which several workers change one server is not the same twice, as its calls come in another
order each time. With the recorded order it is, down to the last bit, if nothing else in it depends on time
or chance.

Rules:
1. Such a server runs one call at a time. A method that waits for another call would wait for ever: after a
   minute the call that waits for its turn fails, and says for which.
2. Calls of workers are recorded, by worker and method. The script's are not: they run when none else does.
3. Of coroutines the order is that of their beginnings: the turn of one ends when it first waits for
   something, or is done. Of streams it is that of the calls which return them; their items come as they do.
4. One that is cancelled before its turn never had it, and is not recorded.
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
    """The server writes down the order of its calls, into a file of its own in this folder.

    On one handle is enough: it holds for the calls of all workers, through any handle.

    Example:
        parameters = program.add_node(lp.CourierNode(Parameters), label="parameters")
        recorded = parameters.through(lp.edges.Record("runs/a"))   # for the workers, in its place

    Args:
        folder: Made if it is not there; on Ray and Kubernetes one that all hosts have.
    """

    folder: str | os.PathLike[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", os.path.abspath(self.folder))


@dataclass(frozen=True)
class Replay:
    """The server runs its calls in the order that `Record` has written into this folder.

    The calls of all workers, as with `Record`. When it has run all that are recorded, it runs others as they
    come; a program that makes fewer is not noticed. A call of another method than the recording has, while it
    has calls of that caller left, fails with ReplayError. So does a server that was not started so often, or
    not at all, when it was recorded.

    Example:
        parameters = program.add_node(lp.CourierNode(Parameters), label="parameters")
        replayed = parameters.through(lp.edges.Replay("runs/a"))   # for the workers, in its place

    Raises:
        DefinitionError: there is no recording.
    """

    folder: str | os.PathLike[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", os.path.abspath(self.folder))
        if not any(Path(self.folder).glob("*.jsonl")):
            raise DefinitionError(f"lp.edges.Replay: there is no recording in {self.folder}")


Ordering = Record | Replay


def order_of(ordering: Ordering, owner: str, attempt: int) -> CallOrder:
    """What keeps, or writes down, the order of the calls of a worker, or of a part of it, `learner-0.1`."""
    file = Path(ordering.folder) / f"{owner}.{attempt}.jsonl"
    return Recorder(file) if isinstance(ordering, Record) else Replayer(file)


class CallOrder(ABC):
    """Lets one call run at a time."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._running: tuple[str, str] | None = None

    @abstractmethod
    def may_begin(self, name: str, method: str) -> bool:
        """Whether it is this call's turn, where none runs."""

    @abstractmethod
    def begins(self, name: str, method: str) -> None:
        """It is, and it runs now."""

    @abstractmethod
    def why_not(self, name: str, method: str) -> str:
        """What it waits for."""

    def close(self) -> None:
        """No call comes any more."""
        return

    def wrapped(self, method: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The method, which waits for its turn."""
        if inspect.iscoroutinefunction(fn):
            import asyncio

            @functools.wraps(fn)
            async def run_later(*args: Any, **kwargs: Any) -> Any:
                await self._turn_of(_name_of_caller(), method)
                asyncio.get_running_loop().call_soon(self._end)  # after the first step of `fn`
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
        """Waits for the turn, and takes it; False for a call that is given up before."""

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
        """Waits for the turn in a thread of its own, so that the loop goes on."""
        import asyncio

        loop = asyncio.get_running_loop()
        begun: asyncio.Future[None] = loop.create_future()

        def begin() -> None:
            error: BaseException | None = None
            try:
                if not self._begin(name, method, begun.cancelled):
                    return
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(report, error)
            except RuntimeError:  # the loop is closed, and the call with it
                if error is None:
                    self._end()

        def report(error: BaseException | None) -> None:
            if error is None and not begun.done():
                begun.set_result(None)
            elif error is None:  # cancelled as the thread took the turn
                self._end()
            elif not begun.done():
                begun.set_exception(error)

        OwnThread(target=begin, name="launchpad-turn").start()
        try:
            await begun
        except asyncio.CancelledError:
            if not begun.cancelled():  # cancelled with the turn, or the error, on its way here
                if begun.exception() is None:
                    self._end()
            else:
                with self._changed:
                    self._changed.notify_all()  # the thread gives up
            raise


class Recorder(CallOrder):
    """Writes each call into a file as it begins: one line, worker and method."""

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
    """Lets calls begin in the order of a file."""

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
        whole, _, _ = text.rpartition("\n")  # the last line is torn if its writer was killed
        self._left = deque((name, method) for name, method in map(json.loads, whole.splitlines()))

    def may_begin(self, name: str, method: str) -> bool:
        if not self._left or self._left[0] == (name, method):
            return True
        if (name, method) not in self._left and any(each[0] == name for each in self._left):
            raise ReplayError(
                f"{name} calls {method}, which it does not any more in the recording {self._file}; there it"
                f" goes on with {next(each[1] for each in self._left if each[0] == name)}. The program, or"
                " something in it that depends on chance, is another."
            )
        return False

    def begins(self, name: str, method: str) -> None:
        if self._left:
            self._left.popleft()

    def why_not(self, name: str, method: str) -> str:
        first = self._left[0]
        return f"in the recording {self._file} it is the turn of {first[0]}'s {first[1]}"


def _name_of_caller() -> str:
    """The worker that calls; empty for a caller that is none."""
    call = caller.current.get()
    return call.peer.name if call is not None and call.peer.attempt else ""
