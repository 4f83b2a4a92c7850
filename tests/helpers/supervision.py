"""A supervisor, the plans of its workers, and the reports that they send it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from launchpad.launch.plan import LaunchPlan, WorkerPlan, WorkerPolicy
from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.outcome import SUCCEEDED, Outcome
from launchpad.restart_policy import RestartPolicy
from launchpad.runtime.commands import StartWorker
from launchpad.runtime.events import Ended, Ready


def worker(
    name: str, *, endpoints: Mapping[str, str] = MappingProxyType({}), **policy: Any
) -> WorkerPlan:
    group, _, index = name.rpartition("-")
    rules = WorkerPolicy(**policy)
    return WorkerPlan(name, group, int(index), 1, "Node", 0, endpoints=endpoints, policy=rules)


def supervisor(*workers: WorkerPlan, grace_s: float = 10.0) -> Supervisor:
    return Supervisor(LaunchPlan("p", "local_mt", workers), grace_s)


def ended(name: str, kind: str = SUCCEEDED, attempt: int = 1, **more: Any) -> Ended:
    return Ended(Outcome(name, kind, attempt=attempt, **more))


def ready(name: str, runs: bool = True, attempt: int = 1) -> Ready:
    return Ready(name, attempt, runs)


def running(
    *workers: WorkerPlan, serving: tuple[str, ...] = (), grace_s: float = 10.0
) -> Supervisor:
    """Return a supervisor whose workers are all ready."""
    watcher = supervisor(*workers, grace_s=grace_s)
    watcher.start_all()
    for plan in workers:
        watcher.on(ready(plan.name, plan.name not in serving), 0.0)
    return watcher


GROUP = RestartPolicy(max_restarts=2, within_s=60, scope="group")


def starts(commands: list[Any]) -> list[StartWorker]:
    return [c for c in commands if isinstance(c, StartWorker)]
