"""Running: a launched program, what `lp.launch` returns."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from launchpad.courier import Client
from launchpad.courier.clients.typed import CourierClient
from launchpad.errors import LaunchError, NotRunningError, ProgramFailed
from launchpad.launch.backend import Backend
from launchpad.launch.ctrl_c import CtrlC
from launchpad.launch.output import Output
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.run_directory import RunDirectory
from launchpad.launch.status import WorkerStatus
from launchpad.launch.supervising import StopAsked, Supervising
from launchpad.launch.watched import State

_NOT_ENDED = (State.STARTING, State.RUNNING, State.STOPPING, State.RESTARTING)


class Running:
    """A program that was launched: wait for it, stop it, look at it, call into it.

    Example:
      with lp.launch(program, "local_mp") as running:     # stopped at the end of the block
        print(running.client("learner").get_variables())

    All methods may be called from any thread. Leaving the `with` block stops the program, and raises
    ProgramFailed if it had failed.

    Attributes:
      plan: What was launched.
      run_id: The name of this run; its logs are in a directory of that name.
      is_test: Whether it belongs to a test, and ends with the script at the latest.
      is_reported: Whether somebody has been told how it ended.
      is_asked: Whether it was asked to stop, by this script or by Ctrl-C.
      is_hurried: Whether it was then told to do so at once.
    """

    def __init__(
        self, plan: LaunchPlan, backend: Backend, run: RunDirectory, output: Output, grace_s: float
    ):
        self.plan, self.run_id = plan, run.run_id
        self.is_test = backend.is_test
        self.is_reported = self.is_asked = self.is_hurried = False
        self._run = run
        self._supervising = Supervising(plan, backend, run, output, grace_s)

    def begin(self) -> None:
        """Starts the workers. Called once, by launch."""
        self._supervising.begin()

    @property
    def log_directory(self) -> Path:
        """Where the logs of this run are."""
        return self._run.logs

    def wait(
        self,
        timeout_s: float | Collection[str] | None = None,
        *,
        labels: Collection[str] | None = None,
        raise_error: bool = True,
        return_on_first_completed: bool = False,
    ) -> None:
        """Blocks until the program has ended.

        Args:
          timeout_s: How long at most; the program goes on when it is over. Labels are taken in its place
            too, since dm-launchpad's programs give them first.
          labels: Wait only for the workers of these groups.
          raise_error: Whether a failure is raised here.
          return_on_first_completed: Return when the first of them has ended, not the last.

        Raises:
          ProgramFailed: a worker failed; its text is the whole report.
          TimeoutError: the time was up before.
          KeyError: there is no such group.
        """
        if isinstance(timeout_s, Collection):
            timeout_s, labels = None, timeout_s
        self._check(labels)
        with CtrlC(self.ask_to_stop) as ctrl_c:
            in_time = self._supervising.wait_for(labels, return_on_first_completed, timeout_s)
            if ctrl_c.pressed is not None:
                self._supervising.done.wait()
        if in_time and raise_error:
            self._raise_failure()
        if not in_time:
            alive = ", ".join(s.worker for s in self.status() if s.state in _NOT_ENDED)
            raise TimeoutError(
                f"program {self.plan.program!r} still runs after {timeout_s} s: {alive}"
            )

    def stop(
        self, reason: str = "stopped by the launching script", *, at_once: bool = False
    ) -> None:
        """Stops the program and blocks until it has ended. A program that has ended is left alone.

        A Ctrl-C meanwhile ends the workers by force; one more no longer waits for that.

        Args:
          reason: Why, for the record.
          at_once: Workers get no time to stop by themselves; also if a stop with time is under way.
        """
        with CtrlC(self.ask_to_stop, is_stopping=True):
            self._ask(StopAsked(reason, at_once))
            self._supervising.done.wait()

    def ask_to_stop(self, at_once: bool = False) -> None:
        """What Ctrl-C does: asks the program to stop and waits for nothing, not even a lock.

        Args:
          at_once: Workers get no time to stop by themselves.
        """
        note = "" if at_once else "stopping … (Ctrl-C again: by force)"
        self._ask(StopAsked("interrupted by Ctrl-C or a signal", at_once, note))

    def _ask(self, asked: StopAsked) -> None:
        self.is_asked, self.is_hurried = True, self.is_hurried or asked.at_once
        self._supervising.put(asked)

    def abandon(self) -> None:
        """For a script that leaves at once: removes what nobody else would remove."""
        self._run.remove()

    def stop_and_wait(self) -> None:
        """Stops the program, then raises ProgramFailed if it had failed."""
        self.stop()
        self.wait()

    @property
    def is_done(self) -> bool:
        """Whether the program has ended, well or badly."""
        return self._supervising.done.is_set()

    def failure(self) -> ProgramFailed | LaunchError | None:
        """What ended the program badly, if anything has; not raised."""
        return self._supervising.failure()

    def exit_status(self) -> int:
        """The exit code that says how the program has ended; 0 if it has ended well, or still runs.

        What a script exits with whose last line is `lp.launch(program)`; the codes are in
        docs/stopping_and_failures.md.
        """
        return self._supervising.exit_status()

    def status(self) -> list[WorkerStatus]:
        """A row for each worker."""
        return self._supervising.status()

    def stacks(self, worker: str) -> str:
        """What the threads of a worker are doing, as text; may take a moment."""
        return self._supervising.stacks(worker)

    def logs(self, label: str) -> str:
        """What the workers of a group, or one worker, have printed so far, in all attempts.

        Raises:
          KeyError: there is no such group or worker.
        """
        names = [w.name for w in self.plan.workers if label in (w.group, w.name)]
        if not names:
            raise KeyError(
                f"program {self.plan.program!r} has no group {label!r}; it has {list(self.plan.groups)}"
            )
        return "".join(self._run.log_files.text(name) for name in names)

    def thread_worker(self, name: str, function: Callable[[], object]) -> None:
        """Runs a function in a thread of this process, as one more worker of the program.

        The program does not end before it has ended, and fails if it raises. In it `lp.stop()` and
        `lp.wait_for_stop()` mean this program. A program that is ending takes no more workers.

        Raises:
          ValueError: the name is taken.
        """
        self._supervising.add(name, function)

    def crash(self, worker: str, why: str) -> str:
        """For tests: has a worker fail that is no process of this host; `lp.testing.Kills` does it.

        A thread is interrupted, and that counts as a failure; elsewhere it is killed.

        Returns:
          How, `Stopped` or `SIGKILL`; empty where it is a process of this host, or is not there.
        """
        return self._supervising.make_fail(worker, why)

    def client(self, label: str, index: int = 0) -> CourierClient[Any]:
        """A client of a CourierNode, for the launching script; of the first one in a colocation.

        Args:
          label: The group.
          index: Which replica.

        Raises:
          KeyError: no such group or replica, or it serves nobody.
          NotRunningError: the program has ended.
        """
        name = f"{label}-{index}"
        self._check([label])
        if self.is_done:
            raise NotRunningError(
                f"program {self.plan.program!r} has ended; nobody answers for {name} any more"
            )
        for address in self.plan.endpoints:
            worker, _, role = address.partition("/")
            if (worker == name or worker.startswith(f"{name}.")) and role.endswith("courier"):
                place = self._supervising.place(address)
                where = place.where if place.moves else place.where()
                return Client(where, name=worker, verdict=place.verdict)
        raise KeyError(f"{name} serves nobody; those that do: {sorted(self.plan.endpoints)}")

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: object
    ) -> None:
        self.stop()
        if error is None:
            self.wait()

    def __repr__(self) -> str:
        state = "ended" if self.is_done else "running"
        return f"<Running {self.plan.program!r} on {self.plan.launch_type}, {state}>"

    def _check(self, labels: Collection[str] | None) -> None:
        for label in labels or ():
            if label not in self.plan.groups:
                raise KeyError(
                    f"program {self.plan.program!r} has no group {label!r};"
                    f" it has {list(self.plan.groups)}"
                )

    def _raise_failure(self) -> None:
        """Raises the failure if there is one, when the program has ended for it."""
        if self.failure() is not None:
            self._supervising.done.wait()
        if self.is_done:
            self.is_reported = True
        failed = self.failure()
        if failed is not None:
            raise failed
