"""Setup and plan: from a program to a plan. Pure: reads the program, changes nothing, starts nothing.

All mistakes that can be seen beforehand are found here: handles that lead nowhere, values that cannot be
sent, environment variables set twice, payloads too large for the backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from launchpad.errors import DefinitionError, PayloadError
from launchpad.executable import Executable
from launchpad.graph import handles_in
from launchpad.launch.backend import Backend
from launchpad.launch.given import Given, checked
from launchpad.launch.payload import Packer, refuse_cycles
from launchpad.launch.plan import LaunchPlan, WorkerPlan, seed_of
from launchpad.nodes.base import Node
from launchpad.nodes.colocation import MultiProcessingColocation
from launchpad.program import Group, Program
from launchpad.resources import PythonProcess, Resources
from launchpad.restart_policy import NO_RESTARTS, RestartPolicy, refuse_endless_main
from launchpad.traverse import Found

Restart = RestartPolicy | Mapping[str, RestartPolicy] | None
"""As launch takes it: for all groups, or by label."""


@dataclass(frozen=True)
class Setup:
    """One worker to be: its nodes (one, or several as threads), by name."""

    name: str
    group: Group
    replica_index: int
    num_replicas: int
    node: Node[Any]
    nodes: tuple[tuple[str, Node[Any]], ...]
    """(path prefix, node) for each node that lives in this worker."""
    restart: RestartPolicy = NO_RESTARTS

    def addresses(self) -> Iterator[tuple[str, str, str]]:
        """(uid, name, kind) of each address it owns."""
        for i, (_, node) in enumerate(self.nodes):
            part = f"{i}." if len(self.nodes) > 1 else ""
            for address in node.addresses:
                yield address.uid, f"{self.name}/{part}{address.role}", address.kind


def setup(program: Program) -> list[Setup]:
    """The workers of a program, in the order in which its groups were opened."""
    workers = []
    for label, nodes in program.groups.items():
        for index, node in enumerate(nodes):
            workers += list(
                _workers_of(
                    node, f"{label}-{index}", program.group_options(label), index, len(nodes)
                )
            )
    if not workers:
        raise DefinitionError(
            f"program {program.name!r} has no nodes; add some with program.add_node(…)"
        )
    return workers


def plan(
    program: Program,
    backend: Backend,
    launch_type: str,
    local_resources: Mapping[str, PythonProcess] | None = None,
    restart: Restart = None,
    resources: Mapping[str, Resources] | None = None,
) -> LaunchPlan:
    """The plan of a program on a backend.

    Raises:
      DefinitionError: a mistake in the program, with the node's label and the path to it.
    """
    given = Given.to(program, local_resources, resources)
    policies = _checked_policies(program, restart)
    workers = [replace(w, restart=policies.get(w.group.label, w.restart)) for w in setup(program)]
    calls = _checked_edges(workers)
    uids = {uid: name for worker in workers for uid, name, _ in worker.addresses()}
    packer = Packer(uids, (id(found.value) for edges in calls.values() for found, _ in edges))
    plans = [_plan_one(w, program.name, backend, packer, calls[w.name], given) for w in workers]
    return backend.finished(
        LaunchPlan(program.name, launch_type, tuple(backend.assign(plans)), uids)
    )


def _workers_of(
    node: Node[Any], name: str, group: Group, index: int, replicas: int
) -> Iterator[Setup]:
    label = group.label
    if isinstance(node, MultiProcessingColocation):
        for i, member in enumerate(node.members()):
            nodes = ((f"{label}.nodes[{i}]", member),)
            policy = node.restart or group.restart
            yield Setup(f"{name}.{i}", group, index, replicas, member, nodes, policy)
    elif node.members():
        members = tuple((f"{label}.nodes[{i}]", member) for i, member in enumerate(node.members()))
        yield Setup(name, group, index, replicas, node, members, group.restart)
    else:
        yield Setup(name, group, index, replicas, node, ((label, node),), group.restart)


def _plan_one(
    worker: Setup,
    program: str,
    backend: Backend,
    packer: Packer,
    edges: list[tuple[Found, str]],
    given: Given,
) -> WorkerPlan:
    group = worker.group
    return WorkerPlan(
        name=worker.name,
        group=group.label,
        replica_index=worker.replica_index,
        num_replicas=worker.num_replicas,
        kind=repr(worker.node),
        seed=seed_of(program, worker.name),
        calls=tuple(dict.fromkeys(target for _, target in edges)),
        endpoints={name: backend.endpoint(name, kind) for _, name, kind in worker.addresses()},
        env=given.environment(group),
        args=given.process(group).argv(),
        python=given.python(group),
        resources=given.resources(group),
        main=group.main,
        restart=worker.restart,
        added_at=worker.node.added_at,
        payload=_payload(worker, backend, packer),
    )


def _payload(worker: Setup, backend: Backend, packer: Packer) -> bytes:
    """The worker's executable as bytes, not larger than the backend can carry."""
    for label, node in worker.nodes:
        refuse_cycles(node, worker.name, label)
    payload = _pack(worker, packer)
    if len(payload) <= backend.max_payload_bytes:
        return payload
    members = [pair for label, node in worker.nodes for pair in packer.largest(node, label)]
    listed = ", ".join(
        f"{path} {size:,} B" for path, size in sorted(members, key=lambda m: -m[1])[:5]
    )
    raise DefinitionError(
        f"{worker.name} ({worker.node!r}, added at {worker.node.added_at}) takes {len(payload):,} bytes"
        f" to send, more than the {backend.max_payload_bytes:,} that this backend carries. Its largest"
        f" members: {listed}. Load them where the node runs, in the constructor or with"
        " lp.Deferred(fn, …)."
    )


def _pack(worker: Setup, packer: Packer) -> bytes:
    label, _ = worker.nodes[0]
    try:
        return packer.pack(_executable(worker.node), worker.node, worker.name, label)
    except PayloadError:
        for label, node in worker.nodes:  # the member that it is about has an error of its own
            packer.pack(_executable(node), node, worker.name, label)
        raise


def _executable(node: Node[Any]) -> Executable:
    executable = node.to_executable()
    if not isinstance(executable, Executable):
        raise DefinitionError(
            f"{node!r}.to_executable() must give an Executable, got {executable!r}"
        )
    return executable


def _checked_edges(workers: list[Setup]) -> dict[str, list[tuple[Found, str]]]:
    """Worker → the handles it holds and whose they are; each must lead to a node of this program."""
    names = {id(node): worker.name for worker in workers for _, node in worker.nodes}
    edges: dict[str, list[tuple[Found, str]]] = {}
    for worker in workers:
        found = [f for label, node in worker.nodes for f in handles_in(node, label)]
        edges[worker.name] = [(f, _target(f, worker, names)) for f in found]
    return edges


def _target(found: Found, worker: Setup, names: Mapping[int, str]) -> str:
    node = found.value.node
    if id(node) not in names:
        home = (
            f"was added to {node.added_to} at {node.added_at}"
            if node.added_at
            else "was never added to a program"
        )
        raise DefinitionError(
            f"{worker.name} holds a handle at {found.path} of {node!r}, which {home}: it will not run here."
            " Add the node to this program, once."
        )
    if not found.value.can_be_dereferenced:
        raise DefinitionError(
            f"{worker.name} holds a handle at {found.path} of {node!r}, which serves nobody and cannot be"
            " called. Make it a CourierNode, or do not pass its handle."
        )
    return names[id(node)]


def _checked_policies(program: Program, restart: Restart) -> dict[str, RestartPolicy]:
    """Label → the policy given at launch, which counts more than the group's own."""
    if isinstance(restart, RestartPolicy):
        restart = dict.fromkeys(program.groups, restart)
    policies = checked("restart", restart, RestartPolicy, program)
    for label, policy in policies.items():
        if program.group_options(label).main:
            refuse_endless_main(label, policy)
    return policies
