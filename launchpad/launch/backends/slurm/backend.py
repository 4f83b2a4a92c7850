"""`slurm`: the backend, and its plan, which is a batch script. Its workers are in `workers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from launchpad.address import COURIER
from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import DefinitionError, LaunchError
from launchpad.launch.backends.backend import Backend, Workers
from launchpad.launch.backends.remote import placement
from launchpad.launch.backends.slurm import script
from launchpad.launch.backends.slurm.settings import SlurmSettings
from launchpad.launch.detached import Detached
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.runtime.events import Event

_RUN_ID = "RUN"
"""A placeholder for the run's id, which a launch chooses."""


class Slurm(Backend):
    """The backend for programs on the nodes of a Slurm job.

    In a job (`sbatch`, `salloc`), the workers run on the nodes of that job. Elsewhere, a launch submits one.

    Args:
        options: The attributes of `SlurmSettings`.
    """

    def __init__(self, **options: Any) -> None:
        self._settings = SlurmSettings(**options)

    def endpoint(self, address: str, kind: str) -> str:
        """Return a template: the node is chosen when the job runs, and the worker takes a free port there."""
        return "tcp:{node}:0" if kind == COURIER else "{node}:0"

    def assign(self, plan: LaunchPlan) -> LaunchPlan:
        """Return the plan with the job's settings. Refuse what no such job can have."""
        why = placement.refusal(plan.workers, "the nodes of a Slurm job")
        if why:
            raise DefinitionError(f"program {plan.program!r} cannot run in a Slurm job: {why}")
        script.job_options(plan, self._settings)
        return SlurmPlan(**vars(plan), settings=self._settings)

    def detach(self, plan: LaunchPlan, grace_s: float) -> Detached:
        raise LaunchError(
            f"detach=True: a program on {plan.launch_type!r} ends with its script. To have it outlive your"
            " login, submit the script itself, `sbatch --nodes=… train.sh`. In a job, launchpad uses the"
            " nodes of the job"
        )

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Submit a job or, in a job, start a step; and prepare the workers."""
        from launchpad.launch.backends.slurm.workers import SlurmWorkers

        return SlurmWorkers(plan, run, report, self._settings)


class TestSlurm(Slurm):
    """`test_slurm`: the same as `slurm`, for unit tests."""

    __test__ = False  # pytest would take it for a test case
    is_test = True


@dataclass(frozen=True)
class SlurmPlan(LaunchPlan):
    """A plan with the job's settings: `lp.plan(program, "slurm")` returns it."""

    settings: SlurmSettings = field(default_factory=SlurmSettings)

    def script(self) -> str:
        """Return the batch script that a launch from outside of a job submits."""
        options = script.job_options(self, self.settings)
        n_nodes = script.number_of_nodes(self.settings)
        return script.text(options, n_nodes, script.folder(_RUN_ID))

    shown = script
