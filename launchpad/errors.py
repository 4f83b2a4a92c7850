"""The exceptions that launchpad raises, as one tree.

    LaunchpadError
    ├── DefinitionError (also a ValueError)     the graph has a mistake; nothing was started
    │   └── PayloadError                        a value in it cannot be sent to a worker
    ├── NotRunningError (also a RuntimeError)   a handle or context was used outside a running program
    ├── LaunchError                             the backend could not start the plan
    ├── ProgramFailed (also a RuntimeError)     a worker failed and the program was stopped
    ├── ResultError                             a worker's return value could not be delivered
    ├── ReplayError                             a call does not fit the recorded order
    ├── BarrierBroken                           a worker that the others wait for has ended for good
    ├── QueueFull, QueueEmpty (TimeoutError)    a queue had no room, or no item, within the time
    ├── QueueClosed (also an EOFError)          a queue gives no more items, or takes no more
    ├── QueueLost                               a queue's worker was started again, and its items are lost
    ├── PeerFailed                              another rank of a collective died, or left
    │   └── MembersChanged                      a worker joined: the next generation begins
    ├── CollectiveMismatch (also a ValueError)  ranks of a collective did different things
    ├── StateError                              a worker's saved state could not be written or read
    ├── DoNotRestart                            a worker failed and would fail again if it were restarted
    └── StaleError                              a CacherNode has no answer that is fresh enough

    Stopped (a BaseException)                   unwinds a run() that does not watch for the stop

Errors of calls between nodes have their own tree, in `launchpad.courier.errors`.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launchpad.outcome import Outcome


class LaunchpadError(Exception):
    """The base class of all exceptions that launchpad itself raises, except `Stopped`.

    Example:
        try:
            lp.run(program, "local_mp")
        except lp.LaunchpadError as error:
            print(error)
    """


class DefinitionError(LaunchpadError, ValueError):
    """The program's description has a mistake. Raised before anything starts.

    Example:
        program = lp.Program("hello")
        try:
            program.add_node(lp.PyNode(print), label="no spaces")
        except lp.DefinitionError as error:
            print(error)                            # and this line is the one that is wrong
    """


def refuse_unless(of: object, rules: Iterable[tuple[str, bool, str]]) -> None:
    """Raise DefinitionError for the first broken rule.

    A rule has three parts: the name of an attribute, True if its value is good, and a text that says which
    values are good.
    """
    for name, is_good, expected in rules:
        if not is_good:
            argument = f"{type(of).__name__}({name}={getattr(of, name)!r})"
            raise DefinitionError(f"{argument}: expected {expected}")


class PayloadError(DefinitionError):
    """A value among a node's arguments cannot be sent to its worker.

    Example:
        program = lp.Program("locks")
        program.add_node(lp.PyNode(print, threading.Lock()), label="main")
        try:
            lp.launch(program)
        except lp.PayloadError as error:
            print(error.node, error.path)           # main-0 main-0.args[0]

    Attributes:
        node: The worker's name, `learner-0`.
        path: The expression that leads to the value, `learner-0.args[1].cfg.lock`.
    """

    def __init__(self, message: str, node: str = "", path: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.path = path


class NotRunningError(LaunchpadError, RuntimeError):
    """Something that works only in a running program was used outside one.

    Example:
        try:
            lp.current()
        except lp.NotRunningError as error:
            print(error)                            # the script is not a worker
    """


class LaunchError(LaunchpadError):
    """The backend could not start the plan. What it had already started was stopped.

    Example:
        try:
            lp.launch(program, "local_mp", state="runs/a")
        except lp.LaunchError as error:
            print(error)                            # another program saves there
    """


class ResultError(LaunchpadError):
    """A worker's return value could not be pickled, sent or unpickled; the text says why.

    Example:
        try:
            lp.run(program, "local_mp")
        except lp.ResultError as error:
            print(error)                            # which worker returned what
    """


class ReplayError(LaunchpadError):
    """A call does not fit the recorded order of calls; the text says which call comes next.

    Example:
        try:
            parameters.push([0.5])
        except lp.ReplayError as error:
            print(error)                            # which call comes next in the recording
    """


class BarrierBroken(LaunchpadError):
    """A worker of the group has ended for good and will never reach the barrier.

    Example:
        try:
            lp.barrier("loaded")
        except lp.BarrierBroken as error:
            print(error)                            # which worker will not come
    """


class QueueFull(LaunchpadError, queue.Full, TimeoutError):
    """A queue had no room for an item within the timeout.

    Example:
        try:
            queue.put_many(rows, timeout_s=0.1)
        except lp.QueueFull as error:
            rows = rows[error.accepted :]

    Attributes:
        accepted: The number of items of `put_many` that the queue took, counted from the first.
    """

    def __init__(self, message: str, accepted: int = 0) -> None:
        super().__init__(message)
        self.accepted = accepted


class QueueEmpty(LaunchpadError, queue.Empty, TimeoutError):
    """A queue had no item within the timeout.

    Example:
        try:
            row = queue.get(timeout_s=0.1)
        except lp.QueueEmpty:
            print("nothing yet")
    """


class QueueClosed(LaunchpadError, EOFError):
    """A queue will give no more items, or this worker said that it will put in no more.

    Example:
        try:
            row = queue.get()
        except lp.QueueClosed:
            print("all producers have closed, and nothing waits")
    """


class QueueLost(LaunchpadError):
    """A queue's worker ended and was started again, so the items that waited in it are lost.

    The text names the queue. Raised once in each thread that used the queue before; after that, the thread
    uses the new queue.

    Example:
        try:
            row = queue.get()
        except lp.QueueLost as error:
            print(error)
            row = queue.get()
    """


class PeerFailed(LaunchpadError):
    """Another rank of a collective died or left, so this generation of the collective is over.

    From then on, every operation of that generation raises this error.

    Example:
        def train(group: lp.Collective, numbers: list[float]) -> float:
            try:
                return group.all_reduce(sum(numbers))
            except lp.PeerFailed as error:
                print(f"{error.worker} is lost, rank {error.rank}")
                raise

    Attributes:
        worker: The worker of that rank, `trainer-2`; the failure report names it as the cause.
        rank: Its rank in that generation; -1 if it has no rank there.
        generation: The number of the generation.
        has_returned: True if the worker didn't die: its function returned while others waited for it.
    """

    def __init__(
        self,
        message: str,
        worker: str = "",
        rank: int = -1,
        generation: int = 0,
        has_returned: bool = False,
    ) -> None:
        super().__init__(message, worker, rank, generation, has_returned)
        self.worker = worker
        self.rank = rank
        self.generation = generation
        self.has_returned = has_returned

    def __str__(self) -> str:
        return str(self.args[0])


class MembersChanged(PeerFailed):
    """A worker joined an elastic collective: the next generation begins, and includes it.

    It is a PeerFailed, so that one `except` handles both.

    Example:
        def train(group: lp.Collective) -> None:
            try:
                train_together(group)
            except lp.MembersChanged:
                print("nothing is lost: one more takes part from now on")
                raise                               # and train is called again, with the next generation
    """


class CollectiveMismatch(LaunchpadError, ValueError):
    """Ranks of a collective made different calls at the same point; the text names two ranks and their calls.

    Two calls also differ if their values differ in structure, types or shapes.

    Example:
        def train(group: lp.Collective) -> None:
            try:
                group.barrier() if group.rank == 0 else group.all_reduce(1.0)
            except lp.CollectiveMismatch as error:
                print(error)
    """


class StateError(LaunchpadError):
    """A worker's saved state could not be written or read. The text names the worker, place and reason.

    Example:
        try:
            lp.current().save(weights)
        except lp.StateError as error:
            print(error)                            # what was saved before is still there
    """


class StaleError(LaunchpadError):
    """The cached answer is older than `stale_after_ms`.

    Example:
        try:
            weights = cached.get_variables()
        except lp.StaleError:
            weights = learner.get_variables()       # slower, but up to date
    """


class DoNotRestart(LaunchpadError):
    """Raise this in a worker that would fail again after a restart. Its restart policy is then ignored.

    Example:
        raise lp.DoNotRestart(f"there is no dataset at {path}") from error
    """


class ProgramFailed(LaunchpadError, RuntimeError):
    """A worker failed, and the program was stopped because of it.

    Its text is the whole report: the first cause with its remote traceback, the last lines that the worker
    printed, the path of its log, and what else failed afterwards.

    Example:
        try:
            lp.run(program, "local_mp")
        except lp.ProgramFailed as error:
            print(error.worker, error.outcome.cause)        # trainer-0 ValueError: no data

    Attributes:
        outcome: The first cause: how that worker ended.
        consequences: The later failures, in the order in which they became known.
    """

    def __init__(
        self, program: str, outcome: Outcome, consequences: tuple[Outcome, ...] = ()
    ) -> None:
        super().__init__(program, outcome, consequences)
        self.program = program
        self.outcome = outcome
        self.consequences = consequences

    @property
    def worker(self) -> str:
        """The worker that failed first, `learner-0`."""
        return self.outcome.worker

    @property
    def phase(self) -> str:
        """The phase in which that worker failed: `start`, `import`, `init`, `run` or `stop`."""
        return self.outcome.phase

    @property
    def log_path(self) -> str:
        """The path of the file with everything that the worker printed."""
        return self.outcome.log_path

    def __str__(self) -> str:
        from launchpad.outcome import report

        return report(self.program, self.outcome, self.consequences)

    def _render_traceback_(self) -> list[str]:
        """Return the report, which IPython shows instead of a traceback with the launcher's frames."""
        return [f"{type(self).__name__}: {self}"]


class Stopped(BaseException):
    """Raised inside a worker's `run()` when the program stops and the worker does not watch for the stop.

    Like KeyboardInterrupt it is not an Exception, so `except Exception` lets it pass; `finally` blocks run.
    A worker that called `lp.stop_event()`, `lp.wait_for_stop()` or `lp.register_stop_handler()` is
    expected to end by itself, and is not interrupted until its grace period is over.

    Example:
        class Actor:
            def run(self) -> None:
                try:
                    while True:
                        self.environment.step()
                finally:                            # runs when lp.Stopped passes
                    self.environment.close()
    """
