"""Base classes of backends: the whole interface between a plan and the world.

A backend gives each address a place before anything starts, and it starts workers. It reports only events of
`launchpad.runtime.events`, and only through one function. `tests/contract` is this page as code.

    launcher                                    backend                          worker
    endpoint(name, kind) ◀── plan
    assign(plan)         ◀── plan
    claim(plan, run)     ◀── launch
    create_workers(plan, run, report) ──▶ Workers
      .execute(StartWorker) ──────────────────▶ thread, process, … ──▶ Worker(…).main()
                               ◀── report ── ProcessStarted · Ready · Returned · Done
                                              EndsWatched · Waiting · StopRequested · WorkerNote
                                              Exiting · JobEnding · Ended
      .execute(StopWorker, AnnounceWatermarks) ───────────────────▶ worker.execute(command)
      .execute(AnnounceGone) ─────────────────────────────────────▶ all others: the same
      .execute(KillWorker) ───────────────────▶ ends it
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from launchpad.errors import LaunchError
from launchpad.runtime.commands import Command
from launchpad.runtime.events import Event
from launchpad.state.places import is_url

if TYPE_CHECKING:
    from launchpad.launch.detached import Detached
    from launchpad.launch.plan import LaunchPlan
    from launchpad.launch.rundir.directory import RunDirectory


class Workers(abc.ABC):
    """The workers of one launch. No method waits for a worker.

    The supervisor's thread calls all methods, except those that any thread may call.

    Example:
        class MyWorkers(lp.Workers):
            def execute(self, command): ...
            def close(self): ...
    """

    announced_within_s: float = 0.0
    """How long an announcement may take to reach a worker."""

    @abc.abstractmethod
    def execute(self, command: Command) -> None:
        """Execute a command of `launchpad.runtime.commands`. Ignore a command for a worker that has ended.

        `StartWorker`: if the worker can't be started, report Ended with phase `start`. Pass `StopWorker` and
        `AnnounceWatermarks` on to the worker. Pass `AnnounceGone` on to the worker in its `to`, or to all
        workers if that is empty. After `KillWorker`, Ended must follow, with kind `stopped`. Unless the
        command says `at_once`, the worker may first write its stacks into its log.
        """

    def places(self) -> Mapping[str, str] | None:
        """Return address name → its present endpoint as this process sees it, if workers move.

        The mapping changes by itself. None means that all addresses are where the plan says.
        """
        return None

    def stacks(self, worker: str) -> str:
        """Return the stacks of a worker's threads as text. Callable from any thread; may wait a moment.

        A backend that cannot show stacks returns a text that says so.
        """
        return "(this backend cannot show stacks)\n"

    def attach(self, worker: str, path: str, token: bytes, thread: str) -> None:
        """Have a worker connect its debugger with a terminal, and return at once. Callable from any thread.

        Args:
            path: A Unix socket at which the terminal listens.
            token: The bytes that the worker sends first.
            thread: The name of the thread to interrupt; empty means the worker's own.

        Raises:
            LaunchError: the worker can't reach the terminal.
        """
        raise LaunchError(
            "its workers run where no terminal of this host reaches them; launch it with local_mp to debug it"
        )

    def crash(self, worker: str, why: str) -> str:
        """Make a worker fail that has no process here to kill. This is for tests. Callable from any thread.

        Returns:
            How it was ended, `Stopped` or `SIGKILL`; empty if workers have a process here, or this one
                doesn't run.
        """
        return ""

    @abc.abstractmethod
    def close(self) -> None:
        """Leave nothing behind. Called once, when all have ended or after a failed start. May wait."""


class Backend(abc.ABC):
    """A way to run a plan. It is stateless: one instance may serve several launches at once.

    Example:
        class MyCluster(lp.Backend):
            def endpoint(self, address: str, kind: str) -> str:
                return "unix:{run}/" + address.replace("/", ".") if kind == "courier" else "localhost:{port}"

            def create_workers(self, plan, run, report) -> lp.Workers:
                return MyWorkers(plan, run, report)
    """

    early: Any = None
    """Anything that the launch started before it had a plan, to save time. Its type is up to the backend."""

    max_payload_bytes: int = 1 << 30
    """The size of the largest executable that the backend carries to a worker, in bytes."""

    starts_with_all_payloads = False
    """True if `create_workers` puts all payloads where workers find them: the plan isn't read later."""

    can_attach = False
    """True if `launchpad attach` reaches its workers."""

    shares_process = False
    """True if its workers run in the process of the script, and share its settings."""

    is_test = False
    """True if its programs belong to a test. They don't keep the interpreter alive, and print nothing."""

    @abc.abstractmethod
    def endpoint(self, address: str, kind: str) -> str:
        """Return where an address will be. Pure.

        It may contain `{run}` for the run's own directory and `{port}` for a free port. The launch fills them
        in.

        Args:
            address: The name of the address, `learner-0/courier`.
            kind: `courier` or `port`, see `launchpad.address`.
        """

    def state_folder(self, state: str) -> str:
        """Return what `launch(state=…)` means on this backend: a path on all hosts, or a URL. Pure.

        Raises:
            DefinitionError: `state` means nothing on this backend.
        """
        return state if is_url(state) else os.path.abspath(os.path.expanduser(state))

    def assign(self, plan: LaunchPlan) -> LaunchPlan:
        """Return the plan with all that only this backend can add before anything starts: devices, ports.

        This is the place to refuse what cannot fit. It must start nothing. By default it returns the plan as
        it is.

        Raises:
            DefinitionError: the workers ask for more than there is; the text shows the arithmetic.
        """
        return plan

    def claim(self, plan: LaunchPlan, run: RunDirectory) -> LaunchPlan:
        """Return the plan with devices that no other run holds. This run holds them until it has ended.

        A launch calls this before `create_workers`. By default the run holds only the folder in which its
        workers save their state.

        Raises:
            LaunchError: other runs hold what this one needs; the text names them.
        """
        if plan.state:
            run.hold_state(plan.state, plan.program)
        return plan

    def detach(self, plan: LaunchPlan, grace_s: float) -> Detached:
        """Start a plan, so that it runs on without this process.

        Raises:
            LaunchError: the backend can't, because its workers end with their launcher.
        """
        from launchpad.launch.detached import refusal

        raise refusal(plan.launch_type)

    def detached(self) -> list[Detached]:
        """Return the detached programs of this backend, as far as they can be found from here."""
        return []

    @abc.abstractmethod
    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Prepare to start the workers, and return the object that starts them.

        It may call `report` from any thread, with any event except `Bound`. `plan` has its final endpoints.
        """
