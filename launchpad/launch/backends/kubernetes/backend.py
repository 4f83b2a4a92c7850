"""The backend `kubernetes`, and its plan, which makes manifests. `pod_workers` runs the pods."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import field, replace
from pathlib import PurePosixPath
from typing import Any

from launchpad.address import COURIER
from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import DefinitionError
from launchpad.launch.backends.backend import Backend, Workers
from launchpad.launch.backends.kubernetes.api.client import Cluster, Manifest
from launchpad.launch.backends.kubernetes.create_run import Submitter
from launchpad.launch.backends.kubernetes.detached import runs
from launchpad.launch.backends.kubernetes.manifests import manifest, names
from launchpad.launch.backends.kubernetes.manifests.names import FIRST_PORT, Run
from launchpad.launch.backends.kubernetes.pod_inputs import pod_input
from launchpad.launch.backends.kubernetes.pod_workers import KubernetesWorkers
from launchpad.launch.backends.kubernetes.settings import FILE, Settings
from launchpad.launch.detached import Detached
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.runtime.events import Event
from launchpad.state.places import is_url

_RUN_ID = "00000000"
"""A placeholder for the run id, which a launch chooses at random."""

_MADE_AT_LAUNCH = b"made at launch: keys, and what the launching script was called with"


class Kubernetes(Backend):
    """The backend that runs each worker as a pod of a cluster."""

    max_payload_bytes = 10 << 20
    submitter: Submitter | None = None
    """The launching script, if that is not this process."""

    def __init__(self, **options: Any) -> None:
        self._settings = Settings.of(options)

    def endpoint(self, address: str, kind: str) -> str:
        """Return the DNS name of the worker's pod. It is known before there is a pod."""
        host = names.host_name(address.partition("/")[0])
        return f"tcp:{host}.{{service}}:0" if kind == COURIER else f"{host}.{{service}}:0"

    def assign(self, plan: LaunchPlan) -> LaunchPlan:
        """Return the plan with ports and the cluster's settings. Refuse what a cluster would refuse."""
        if not self._settings.image:
            raise DefinitionError(
                "launch type 'kubernetes' needs an image: one that has Python, launchpad and your packages."
                f" Give image=… to launch and plan, or `image: …` in a YAML file that ${FILE} names"
            )
        groups = dict.fromkeys(worker.group for worker in plan.workers)
        for label in self._settings.group_patches:
            if label not in groups:
                raise DefinitionError(
                    f"group_patches names a group {label!r}; program {plan.program!r} has {list(groups)}"
                )
        hosts: dict[str, str] = {}
        for worker in plan.workers:
            resources = worker.resources
            if resources.gpus != int(resources.gpus):
                raise DefinitionError(
                    f"{worker.name} asks for {resources.gpus:g} GPU: a cluster gives whole ones only. Ask for"
                    " 1, or let several nodes share a worker with lp.MultiThreadingColocation"
                )
            if resources.accelerator:
                raise DefinitionError(
                    f"{worker.name} asks for the accelerator {resources.accelerator!r}, which a cluster"
                    " cannot look for by a part of its name. Name the nodes that have it,"
                    " labels={'nvidia.com/gpu.product': …}, as `kubectl get nodes --show-labels` shows them"
                )
            host = names.host_name(worker.name)
            if host in hosts:
                raise DefinitionError(
                    f"{hosts[host]} and {worker.name} would both be called {host!r} in the cluster, where"
                    " names are of small letters, digits and dashes. Give their groups other labels"
                )
            hosts[host] = worker.name
        workers = (
            replace(
                worker,
                endpoints={
                    name: f"{endpoint.removesuffix(':0')}:{FIRST_PORT + i}"
                    for i, (name, endpoint) in enumerate(worker.endpoints.items())
                },
            )
            for worker in plan.workers
        )
        fields = vars(plan) | {"workers": tuple(workers)}
        return ClusterPlan(**fields, settings=self._settings)

    def state_folder(self, state: str) -> str:
        """Return the URL, or the path of a folder in the volume from the settings."""
        if is_url(state):
            return state
        if not self._settings.state_volume:
            raise DefinitionError(
                f"state={state!r}: on a cluster that is a folder in a volume. Say which, state_volume="
                "{'persistentVolumeClaim': {'claimName': …}}, or give a URL that fsspec opens, 's3://…'"
            )
        parts = PurePosixPath(state).parts
        inside = [part for part in parts if part not in ("/", ".")]
        if not inside or ".." in inside:
            raise DefinitionError(f"state={state!r} must be a folder inside the volume, as 'exp1'")
        return "/".join(inside)

    def claim(self, plan: LaunchPlan, run: RunDirectory) -> LaunchPlan:
        # A folder in a volume is held in the cluster instead: `create_run` does that.
        if is_url(plan.state):
            run.hold_state(plan.state, plan.program)
        chosen = self.submitter.run if self.submitter is not None else ""
        return named(plan, chosen or names.run_name(plan.program, run.runtime.name))

    def detach(self, plan: LaunchPlan, grace_s: float) -> Detached:
        """Have a launcher pod in the cluster launch the plan and supervise it."""
        cluster = Cluster(self._settings.namespace)
        try:
            return runs.launch(cluster, plan, self._settings, grace_s)
        except BaseException:
            cluster.close()
            raise

    def detached(self) -> list[Detached]:
        """Return the runs on $KUBECONFIG's cluster whose launchers are elsewhere or were killed.

        The list is empty if neither $KUBECONFIG nor $LAUNCHPAD_KUBERNETES is set.
        """
        if not os.environ.get("KUBECONFIG") and not os.environ.get(FILE):
            return []
        return runs.find(Cluster(Settings.of({}).namespace))

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        cluster = Cluster(self._settings.namespace)
        try:
            return KubernetesWorkers(plan, run, report, self._settings, cluster, self.submitter)
        except BaseException:
            cluster.close()
            raise


class TestKubernetes(Kubernetes):
    """`test_kubernetes`: the same as `kubernetes`, for unit tests."""

    __test__ = False  # pytest would take it for a test case
    is_test = True


@dataclass(frozen=True)
class ClusterPlan(LaunchPlan):
    """A plan with the cluster's settings: `lp.plan(program, "kubernetes", image=…)` returns it."""

    settings: Settings = field(default_factory=Settings)

    def manifests(self) -> list[Manifest]:
        """Return the objects of a launch, in the order of creation, without secrets and random parts."""
        name = names.run_name(self.program, _RUN_ID)
        workers = named(self, name).workers
        files, places = pod_input.pack_secrets(
            dict.fromkeys(pod_input.FILES, _MADE_AT_LAUNCH),
            manifest.contents(_MADE_AT_LAUNCH, workers),
        )
        run = Run(self.program, name, self.settings, places, state=self.state)
        shared = [manifest.root(run), manifest.service(run), *manifest.inputs(run, files)]
        return shared + [manifest.job(run, worker, 1) for worker in workers]

    def to_yaml(self) -> str:
        import yaml

        return str(yaml.safe_dump_all(self.manifests(), sort_keys=False))

    shown = to_yaml


def named(plan: LaunchPlan, service: str) -> LaunchPlan:
    """Return the plan with the name of the run in its addresses."""
    workers = [
        replace(w, endpoints={n: e.replace("{service}", service) for n, e in w.endpoints.items()})
        for w in plan.workers
    ]
    return replace(plan, workers=tuple(workers))
