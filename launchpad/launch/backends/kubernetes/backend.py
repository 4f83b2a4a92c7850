"""`kubernetes`: the backend. What starts, watches and ends pods is in `workers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from launchpad.address import COURIER
from launchpad.errors import DefinitionError
from launchpad.launch.backend import Backend, Report, Workers
from launchpad.launch.backends.kubernetes.cluster_plan import ClusterPlan, named
from launchpad.launch.backends.kubernetes.objects import names
from launchpad.launch.backends.kubernetes.objects.layout import FIRST_PORT
from launchpad.launch.backends.kubernetes.sender import Sender
from launchpad.launch.backends.kubernetes.settings import FILE, Settings
from launchpad.launch.detached import Detached
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.run_directory import RunDirectory


class Kubernetes(Backend):
    """For programs whose machines are a cluster's."""

    max_payload_bytes = 10 << 20
    sender: Sender | None = None
    """The script that launches, if that is not this process."""

    def __init__(self, **options: Any) -> None:
        self._settings = Settings.of(options)

    def endpoint(self, address: str, kind: str) -> str:
        """A name that is known before there is a pod."""
        host = names.host_name(address.partition("/")[0])
        return f"tcp:{host}.{{service}}:0" if kind == COURIER else f"{host}.{{service}}:0"

    def assign(self, workers: Sequence[WorkerPlan]) -> Sequence[WorkerPlan]:
        """Ports; and refuses what a cluster would refuse."""
        if not self._settings.image:
            raise DefinitionError(
                "launch type 'kubernetes' needs an image: one that has Python, launchpad and your packages."
                f" Give image=… to launch and plan, or `image: …` in a YAML file that ${FILE} names"
            )
        for worker in workers:
            _refuse(worker)
        _refuse_twins(workers)
        return [replace(worker, endpoints=_with_ports(worker.endpoints)) for worker in workers]

    def finished(self, plan: LaunchPlan) -> LaunchPlan:
        """The plan with its manifests."""
        return ClusterPlan(**vars(plan), settings=self._settings)

    def claim(self, plan: LaunchPlan, run: RunDirectory) -> LaunchPlan:
        """The plan with the name of the run in its addresses."""
        chosen = self.sender.run if self.sender is not None else ""
        return named(plan, chosen or names.run_name(plan.program, run.runtime.name))

    def detach(self, plan: LaunchPlan, grace_s: float) -> Detached:
        """Leaves it to a supervisor in the cluster."""
        from launchpad.launch.backends.kubernetes.left import leaving

        return leaving.leave_behind(plan, self._settings, grace_s)

    def detached(self) -> list[Detached]:
        """Those on the cluster that $KUBECONFIG names, whose launchers are elsewhere or were killed."""
        from launchpad.launch.backends.kubernetes.left import away

        return away.detached()

    def start(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Report], None]
    ) -> Workers:
        """Asks the cluster for what all pods share."""
        from launchpad.launch.backends.kubernetes.attempts.workers import KubernetesWorkers
        from launchpad.launch.backends.kubernetes.cluster.api import Api

        cluster = Api(self._settings.namespace)
        try:
            return KubernetesWorkers(plan, run, report, self._settings, cluster, self.sender)
        except BaseException:
            cluster.close()
            raise


class TestKubernetes(Kubernetes):
    """`test_kubernetes`: the same, for unit tests."""

    __test__ = False  # no test case, whatever pytest makes of the name
    is_test = True


def _with_ports(endpoints: Mapping[str, str]) -> dict[str, str]:
    return {
        name: f"{endpoint.removesuffix(':0')}:{FIRST_PORT + i}"
        for i, (name, endpoint) in enumerate(endpoints.items())
    }


def _refuse(worker: WorkerPlan) -> None:
    asked = worker.resources
    if asked.gpus != int(asked.gpus):
        raise DefinitionError(
            f"{worker.name} asks for {asked.gpus:g} GPU: a cluster gives whole ones only. Ask for 1, or let"
            " several nodes share a worker with lp.MultiThreadingColocation"
        )
    if asked.accelerator:
        raise DefinitionError(
            f"{worker.name} asks for the accelerator {asked.accelerator!r}, which a cluster cannot look"
            " for by a part of its name. Name the nodes that have it, labels={'nvidia.com/gpu.product': …},"
            " as `kubectl get nodes --show-labels` shows them"
        )


def _refuse_twins(workers: Sequence[WorkerPlan]) -> None:
    hosts: dict[str, str] = {}
    for worker in workers:
        host = names.host_name(worker.name)
        if host in hosts:
            raise DefinitionError(
                f"{hosts[host]} and {worker.name} would both be called {host!r} in the cluster, where names"
                " are of small letters, digits and dashes. Give their groups other labels"
            )
        hosts[host] = worker.name
