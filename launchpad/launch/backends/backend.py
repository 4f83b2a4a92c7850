"""Base classes of backends: the whole interface between a plan and the world.

A backend gives each address a place, before anything starts, and starts workers. What comes back up are
events, `launchpad.runtime.events`, through one function; nothing else. `tests/contract` is this page as code.

    launcher                                    backend                          worker
    endpoint(name, kind) ◀── plan
    assign(plan)         ◀── plan
    claim(plan, run)     ◀── launch
    create_workers(plan, run, report) ──▶ Workers
      .execute(StartWorker) ──────────────────▶ thread, process, … ──▶ Worker(…).main()
                               ◀── report ── ProcessStarted · Ready · Returned · Done
                                              EndsWatched · Waiting · StopRequested · WorkerNote
                                              Exiting · Ended
      .execute(StopWorker, AnnounceWatermarks) ───────────────────▶ worker.execute(command)
      .execute(AnnounceGone) ─────────────────────────────────────▶ all others: the same
      .execute(KillWorker) ───────────────────▶ makes an end
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
    """The workers of one launch. Called by one thread, the supervisor's; no method waits for a worker.

    Example:
        class MyWorkers(lp.Workers):
            def execute(self, command): ...
            def close(self): ...
    """

    announced_within_s: float = 0.0
    """How long what is announced may take to arrive."""

    @abc.abstractmethod
    def execute(self, command: Command) -> None:
        """Execute a command of `launchpad.runtime.commands`; one for a worker that has ended is ignored.

        `StartWorker`: a worker that cannot be started reports Ended, phase `start`. `StopWorker` and
        `AnnounceWatermarks` go to the worker, `AnnounceGone` to all of them. `KillWorker`: Ended must follow,
        kind `stopped`; unless the worker is to be killed at once, it may first write its stacks into its log.
        """

    def places(self) -> Mapping[str, str] | None:
        """Address name → where it is now as this process sees it, if workers move; changes by itself.

        None: where the plan says.
        """
        return None

    def stacks(self, worker: str) -> str:
        """Return the stacks of a worker's threads as text. Callable from any thread; may wait a moment.

        A backend that cannot show them says so.
        """
        return "(this backend cannot show stacks)\n"

    def attach(self, worker: str, path: str, token: bytes, thread: str) -> None:
        """Has a worker connect its debugger with a terminal; returns at once. From any thread.

        Args:
            path: A Unix socket at which the terminal listens.
            token: What the worker says first.
            thread: The name of the thread to interrupt; empty: the worker's own.

        Raises:
            LaunchError: it cannot.
        """
        raise LaunchError(
            "its workers run where no terminal of this host reaches them; launch it with local_mp to debug it"
        )

    def crash(self, worker: str, why: str) -> str:
        """For tests: makes a worker fail that has no process here to be killed. Called by any thread.

        Returns:
            How, `Stopped` or `SIGKILL`; empty where workers have a process here, or if it is not there.
        """
        return ""

    @abc.abstractmethod
    def close(self) -> None:
        """Leaves nothing behind. Called once, when all have ended or after a failed start; may wait."""


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
    """What the launch has started before it had a plan, to save time; only the backend knows what it is."""

    max_payload_bytes: int = 1 << 30
    """The largest executable, in bytes, that it carries to a worker."""

    starts_with_all_payloads = False
    """Whether `create_workers` puts all payloads where workers find them, and none is read after that."""

    can_attach = False
    """Whether `launchpad attach` reaches its workers."""

    shares_process = False
    """Whether its workers run in the process of the script, and share what that has set."""

    is_test = False
    """Whether its programs belong to a test: they do not keep the interpreter alive, and print nothing."""

    @abc.abstractmethod
    def endpoint(self, address: str, kind: str) -> str:
        """Return where an address will be. Pure.

        `{run}` in it stands for the run's own directory, `{port}` for a free port; the launch fills them in.

        Args:
            address: Its name, `learner-0/courier`.
            kind: `courier` or `port`, see `launchpad.address`.
        """

    def state_folder(self, state: str) -> str:
        """Return what `launch(state=…)` means on this backend: a path on all hosts, or a URL. Pure.

        Raises:
            DefinitionError: it means nothing.
        """
        return state if is_url(state) else os.path.abspath(os.path.expanduser(state))

    def assign(self, plan: LaunchPlan) -> LaunchPlan:
        """The plan with what only this backend can say of it before anything starts: devices, ports.

        The place to refuse what cannot fit. By default nothing is looked at. Starts nothing.

        Raises:
            DefinitionError: there is less than the workers ask for; it shows the arithmetic.
        """
        return plan

    def claim(self, plan: LaunchPlan, run: RunDirectory) -> LaunchPlan:
        """The plan with the devices that no other run holds; this one holds them until it has ended.

        Called at a launch, before `create_workers`. By default only the folder is held in which its workers
        save.

        Raises:
            LaunchError: other runs hold what this one needs; it says which.
        """
        if plan.state:
            run.hold_state(plan.state, plan.program)
        return plan

    def detach(self, plan: LaunchPlan, grace_s: float) -> Detached:
        """Starts a plan that runs on without this process.

        Raises:
            LaunchError: it cannot, as backends whose workers end with their launcher.
        """
        from launchpad.launch.detached import refusal

        raise refusal(plan.launch_type)

    def detached(self) -> list[Detached]:
        """The programs that were left behind so, as far as they can be found from here."""
        return []

    @abc.abstractmethod
    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Prepares to start workers; what it returns starts them.

        `report` may be called from any thread, with any event but `Bound`. `plan` has its final endpoints.
        """
