"""The way from a program to a plan. Pure: it reads the program, changes nothing and starts nothing.

The workers of a group get their options from the program, and from what launch is given by label:

    program.group("actor", resources=…)   ┐ one of the two: what is given at launch
    launch(resources={"actor": …})        ┘ counts, and replaces all that the group has
    launch(local_resources={"actor": …})    is added; no setting may be in both

All mistakes that can be seen before the start are found here. Examples are handles of nodes that will not
run, values that cannot be pickled, environment variables set twice, payloads too large for the backend.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from launchpad import compat
from launchpad.address import COURIER, Address
from launchpad.edges.recording import Ordering
from launchpad.errors import DefinitionError, PayloadError
from launchpad.handle import handles_in
from launchpad.launch import large_buffers
from launchpad.launch.backends.backend import Backend
from launchpad.launch.devices.device import VISIBLE
from launchpad.launch.plan import (
    LaunchPlan,
    Payload,
    ProcessPlan,
    WorkerPlan,
    WorkerPolicy,
    seed_of,
)
from launchpad.launch.planning import left_behind
from launchpad.launch.planning.payload import Packed, Packer, qualified
from launchpad.nodes.base import Node
from launchpad.nodes.colocation import MultiProcessingColocation
from launchpad.nodes.courier import CourierHandle
from launchpad.program import Program, checked_modules
from launchpad.resources import PythonProcess, Resources
from launchpad.restart_policy import RestartPolicy, refuse_endless_main
from launchpad.runtime import random_numbers
from launchpad.traverse import Found, contains_itself

_T = TypeVar("_T")
_OURS = f"{__name__.partition('.')[0]}."

Restart = RestartPolicy | Mapping[str, RestartPolicy] | None
"""The `restart` of a launch: a policy for all groups, or by label."""

Preload = Sequence[str] | Mapping[str, Sequence[str]] | None
"""The `preload` of a launch: names of modules for all groups, or by label."""


class PlacedNode(NamedTuple):
    """A node, and the worker that runs it.

    Attributes:
        path: Its place in the program: `actor`, or `trainer.nodes[0]` for a part of a colocation.
    """

    worker: str
    label: str
    replica_index: int
    path: str
    node: Node[Any]

    @property
    def parts(self) -> list[tuple[str, Node[Any]]]:
        """The path and node of each thread of a colocation in threads; else its own path and node."""
        members = [
            (f"{self.path}.nodes[{i}]", member) for i, member in enumerate(self.node.members())
        ]
        return members or [(self.path, self.node)]

    @property
    def addresses(self) -> dict[str, Address]:
        """Name → address, for the addresses that the worker owns."""
        parts = self.parts
        return {
            f"{self.worker}/{f'{i}.' if len(parts) > 1 else ''}{address.role}": address
            for i, (_, part) in enumerate(parts)
            for address in part.addresses
        }


def placed_nodes(program: Program) -> list[PlacedNode]:
    """Return the node of each worker, in the order in which groups were opened.

    Raises:
        DefinitionError: the program has no nodes, or one of them is not complete.
    """
    all_nodes: list[PlacedNode] = []
    for label, nodes in program.groups.items():
        for index, node in enumerate(nodes):
            members = node.members()
            for member in (node, *members):
                try:
                    member.check_definition()
                except DefinitionError as error:
                    raise DefinitionError(f"{error} It was added at {member.added_at}.") from None
            worker = f"{label}-{index}"
            if isinstance(node, MultiProcessingColocation):
                all_nodes += [
                    PlacedNode(f"{worker}.{i}", label, index, f"{label}.nodes[{i}]", part)
                    for i, part in enumerate(members)
                ]
            else:
                all_nodes.append(PlacedNode(worker, label, index, label, node))
    if not all_nodes:
        raise DefinitionError(
            f"program {program.name!r} has no nodes; add some with program.add_node(…)"
        )
    return all_nodes


def plan(
    program: Program,
    backend: Backend,
    launch_type: str,
    local_resources: Mapping[str, PythonProcess] | None = None,
    restart: Restart = None,
    resources: Mapping[str, Resources] | None = None,
    state: str | os.PathLike[str] | None = None,
    preload: Preload = None,
) -> LaunchPlan:
    """Return the plan of a program on a backend, as `lp.plan` describes it."""
    of_program = compat.of_groups(local_resources, program)
    processes = _checked("local_resources", of_program, PythonProcess, program)
    at_launch = _checked("resources", resources, Resources, program)
    if isinstance(restart, RestartPolicy):
        restart = dict.fromkeys(program.groups, restart)
    policies = _checked("restart", restart, RestartPolicy, program)
    for label, policy in policies.items():
        if program.group_options(label).main:
            refuse_endless_main(label, policy)
    all_nodes = placed_nodes(program)
    preloads = _preloads(preload, program)
    calls = _checked_edges(all_nodes)
    orderings = _orderings(calls)
    addresses = {placed_node.worker: placed_node.addresses for placed_node in all_nodes}
    uids = {address.uid: name for owned in addresses.values() for name, address in owned.items()}
    edges = frozenset(id(handle.value) for of_worker in calls.values() for handle, _ in of_worker)
    packer = Packer(uids, edges)
    plans = []
    for placed_node in all_nodes:
        worker = placed_node.worker
        label = placed_node.label
        group = program.group_options(label)
        own_resources = group.resources
        source = f"program.group({label!r}, resources=…)"
        if label in at_launch:
            own_resources = at_launch[label]
            source = f"resources={{{label!r}: …}} at launch"
        process = _process_of(label, source, own_resources, processes.get(label, PythonProcess()))
        packed = _packed(placed_node, backend, packer)
        setup = tuple(
            packer.pack_setup(owner, function)
            for owner, function in (
                (f"program {program.name!r}", program.setup),
                (f"group {label!r}", group.setup),
            )
            if function is not None
        )
        plans.append(
            WorkerPlan(
                name=worker,
                group=label,
                replica_index=placed_node.replica_index,
                num_replicas=len(program.groups[label]),
                kind=repr(placed_node.node),
                seed=seed_of(program.name, worker),
                calls=tuple(dict.fromkeys(target for _, target in calls[worker])),
                endpoints={
                    name: backend.endpoint(name, address.kind)
                    for name, address in addresses[worker].items()
                },
                resources=own_resources,
                process=ProcessPlan(process.env, process.argv(), process.python, preloads[label]),
                policy=WorkerPolicy(
                    restart=policies.get(label) or _restart_of(placed_node, program),
                    main=group.main,
                    ordering=orderings.get(worker),
                    serves_until=group.serves_until,
                    stops_last=all(node.stops_last for _, node in placed_node.parts),
                ),
                added_at=placed_node.node.added_at,
                payload=Payload(packed.stream, packed.buffers, setup),
            )
        )
    nodes = [node for placed_node in all_nodes for _, node in placed_node.parts]
    served = (
        node.create_handle()
        for node in nodes
        if any(address.kind == COURIER for address in node.addresses)
    )
    options = dict(handle.client_options for handle in served if isinstance(handle, CourierHandle))
    client_options = {uids[uid]: of_client for uid, of_client in options.items() if uid in uids}
    modules = (type(node).__module__ for node in nodes)
    ours = tuple(dict.fromkeys(m for m in modules if m.startswith(_OURS)))
    notes: list[str] = []
    if not backend.shares_process:
        notes.append(
            random_numbers.note(generator.name for generator in packer.generators.values())
        )
        if not any(worker.payload.setup for worker in plans):
            notes.append(left_behind.note())
    launch_plan = LaunchPlan(
        program.name,
        launch_type,
        tuple(plans),
        uids,
        client_options,
        ours,
        "" if state is None else backend.state_folder(_checked_folder(state)),
        tuple(filter(None, notes)),
    )
    if not backend.starts_with_all_payloads:
        # A later attempt must begin with what the arrays hold now.
        large_buffers.keep_copies(launch_plan.large_buffers)
    return backend.assign(launch_plan)


def _restart_of(placed_node: PlacedNode, program: Program) -> RestartPolicy:
    """Return the policy that the program sets, for a colocation of processes or for the group."""
    node = program.groups[placed_node.label][placed_node.replica_index]
    if isinstance(node, MultiProcessingColocation) and node.restart is not None:
        return node.restart
    return program.group_options(placed_node.label).restart


def _orderings(calls: Mapping[str, list[tuple[Found, str]]]) -> dict[str, Ordering]:
    """Return worker → the order of its calls, as set by the handles that other workers hold."""
    orderings: dict[str, Ordering] = {}
    for caller, handles in calls.items():
        for handle, target in handles:
            ordering = getattr(handle.value, "ordering", None)
            if ordering is not None and orderings.setdefault(target, ordering) != ordering:
                raise DefinitionError(
                    f"{caller} holds a handle of {target} at {handle.path} that goes through {ordering!r},"
                    f" and another one goes through {orderings[target]!r}: a server has one order of calls"
                )
    return orderings


def _preloads(preload: Preload, program: Program) -> dict[str, tuple[str, ...]]:
    """Return label → the modules to import before its workers are forked.

    These are the group's own modules and those that launch is given.
    """
    if not isinstance(preload, Mapping):
        preload = dict.fromkeys(program.groups, preload or ())
    preloads = {}
    for label, group in ((label, program.group_options(label)) for label in program.groups):
        names = (*group.preload, *checked_modules(preload.get(label, ())))
        preloads[label] = tuple(dict.fromkeys(names))
    unknown_labels = set(preload) - set(program.groups)
    if unknown_labels:
        raise DefinitionError(
            f"preload names a group {min(unknown_labels)!r};"
            f" program {program.name!r} has {list(program.groups)}"
        )
    return preloads


def _checked_folder(state: str | os.PathLike[str]) -> str:
    place = os.fspath(state) if isinstance(state, str | os.PathLike) else ""
    if not isinstance(place, str) or not place.strip():
        raise DefinitionError(f"state= is the path or URL of a folder, got {state!r}")
    return place


def _checked(
    name: str, by_label: Mapping[str, _T] | None, kind: type[_T], program: Program
) -> dict[str, _T]:
    """Return the values that launch was given, by label.

    Raises:
        DefinitionError: a value has the wrong type, or the program has no such label.
    """
    for label, value in (by_label or {}).items():
        if label not in program.groups:
            raise DefinitionError(
                f"{name} names a group {label!r};"
                f" program {program.name!r} has {list(program.groups)}"
            )
        if not isinstance(value, kind):
            raise DefinitionError(f"{name}[{label!r}] must be lp.{kind.__name__}(…), got {value!r}")
    return dict(by_label or {})


def _process_of(
    label: str, source: str, resources: Resources, process: PythonProcess
) -> PythonProcess:
    """Return a process's settings, from `resources`, which `source` sets, and from `process`."""
    # The text in a user's program that makes settings → these settings.
    sources: dict[str, Resources | PythonProcess] = {source: resources}
    sources[f"local_resources[{label!r}]"] = process
    env: dict[str, str] = {}
    origin: dict[str, str] = {}
    for source, settings in sources.items():
        for name, value in settings.env.items():
            if name in env:
                values = {origin[name]: env[name], source: str(value)}
                raise _set_twice(f"the environment variable {name}", label, values)
            env[name] = str(value)
            origin[name] = source
    if resources.gpus and VISIBLE in env:
        of_gpus = f"Resources(gpus={resources.gpus:g})"
        values = {origin[VISIBLE]: env[VISIBLE], of_gpus: "the GPUs it gets"}
        raise _set_twice(f"the environment variable {VISIBLE}", label, values)
    pythons = {source: settings.python for source, settings in sources.items() if settings.python}
    if len(pythons) > 1:
        raise _set_twice("the Python", label, pythons)
    return PythonProcess(process.args, env, next(iter(pythons.values()), ""))


def _set_twice(setting: str, label: str, values: Mapping[str, str]) -> DefinitionError:
    listed = ", and ".join(f"{value!r} by {source}" for source, value in values.items())
    return DefinitionError(
        f"{setting} of group {label!r} is set by two sources: {listed}. Keep one."
    )


def _packed(placed_node: PlacedNode, backend: Backend, packer: Packer) -> Packed:
    """Return the worker's executable as bytes.

    Raises:
        PayloadError: the executable cannot be pickled.
        DefinitionError: the executable is larger than the backend can carry.
    """
    for label, node in placed_node.parts:
        for where, value in node.arguments().items():
            place = contains_itself(value, f"{label}.{where}")
            if place is not None:
                raise PayloadError(
                    f"{placed_node.worker} ({node!r}, added at {node.added_at}) cannot be sent to its worker"
                    f" because of {place.path}: a {qualified(type(place.value))} that contains itself",
                    node=placed_node.worker,
                    path=place.path,
                )
    label, _ = placed_node.parts[0]
    packed = Packed(b"", ())
    payload_error: PayloadError | None = None
    try:
        packed = packer.pack(placed_node.node, placed_node.worker, label)
    except PayloadError as error:
        payload_error = error
    # Do this outside of the `except` block, so that the errors are not chained.
    if payload_error is not None:
        # The part that cannot be pickled raises an error of its own.
        for label, node in placed_node.parts:
            packer.pack(node, placed_node.worker, label)
        raise payload_error
    if packed.nbytes <= backend.max_payload_bytes:
        return packed
    members = [pair for label, node in placed_node.parts for pair in packer.largest(node, label)]
    largest = sorted(members, key=lambda member: -member[1])[:5]
    listed = ", ".join(f"{path} {size:,} B" for path, size in largest)
    raise DefinitionError(
        f"{placed_node.worker} ({placed_node.node!r}, added at {placed_node.node.added_at}) takes"
        f" {packed.nbytes:,} bytes to send, more than the {backend.max_payload_bytes:,} that this backend"
        " carries. Its largest"
        f" members: {listed}. Load them where the node runs, in the constructor or with"
        " lp.Deferred(fn, …)."
    )


def _checked_edges(all_nodes: list[PlacedNode]) -> dict[str, list[tuple[Found, str]]]:
    """Return worker → its handles, each with the worker that it refers to.

    Raises:
        DefinitionError: a handle refers to no node of this program, or to one that serves nothing.
    """
    names = {
        id(node): placed_node.worker for placed_node in all_nodes for _, node in placed_node.parts
    }
    edges: dict[str, list[tuple[Found, str]]] = {
        placed_node.worker: [] for placed_node in all_nodes
    }
    for placed_node in all_nodes:
        for handle in (f for path, node in placed_node.parts for f in handles_in(node, path)):
            target = handle.value.node
            holds = f"{placed_node.worker} holds a handle at {handle.path} of {target!r}, which"
            if id(target) not in names:
                owner = "was never added to a program"
                if target.added_at:
                    owner = f"was added to {target.added_to} at {target.added_at}"
                raise DefinitionError(
                    f"{holds} {owner}: it will not run here. Add the node to this program, once."
                )
            if not handle.value.can_be_dereferenced:
                raise DefinitionError(
                    f"{holds} serves nothing and cannot be called. Make it a CourierNode, or do not pass"
                    " its handle."
                )
            edges[placed_node.worker].append((handle, names[id(target)]))
    return edges
