"""From a program to a plan. Pure: reads the program, changes nothing, starts nothing.

What the workers of a group get is from the program, and from what its launch was given by label:

    program.group("actor", resources=…)   ┐ one of the two: what is given at launch
    launch(resources={"actor": …})        ┘ counts, in the place of all that the group has
    launch(local_resources={"actor": …})    is added; nothing may be set by both

All mistakes that can be seen beforehand are found here: handles of nodes that will not run, values that
cannot be pickled, environment variables set twice, payloads too large for the backend.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from launchpad import compat
from launchpad.address import COURIER
from launchpad.courier.light_dataclass import dataclass
from launchpad.edges.recording import Ordering
from launchpad.errors import DefinitionError, PayloadError
from launchpad.handle import handles_in
from launchpad.launch import large_buffers
from launchpad.launch.backends.backend import Backend
from launchpad.launch.devices.device import VISIBLE
from launchpad.launch.plan import LaunchPlan, WorkerPlan, seed_of
from launchpad.launch.planning import left_behind
from launchpad.launch.planning.payload import Packed, Packer, qualified
from launchpad.nodes.base import Node
from launchpad.nodes.colocation import MultiProcessingColocation
from launchpad.nodes.courier import CourierHandle
from launchpad.program import Group, Program, checked_modules
from launchpad.resources import PythonProcess, Resources
from launchpad.restart_policy import NO_RESTARTS, RestartPolicy, refuse_endless_main
from launchpad.runtime import random_numbers
from launchpad.traverse import Found, contains_itself

_T = TypeVar("_T")
_OURS = f"{__name__.partition('.')[0]}."

Restart = RestartPolicy | Mapping[str, RestartPolicy] | None
"""What launch takes: a policy for all groups, or by label."""

Preload = Sequence[str] | Mapping[str, Sequence[str]] | None
"""What launch takes: names of modules for all groups, or by label."""


@dataclass(frozen=True)
class WorkerDraft:
    """One worker before it is planned: its nodes (one, or several as threads)."""

    name: str
    group: Group
    replica_index: int
    num_replicas: int
    node: Node[Any]
    nodes: tuple[tuple[str, Node[Any]], ...]
    """(path prefix, node) for each node that runs in this worker."""
    addresses: tuple[tuple[str, str, str], ...]
    """(uid, name, kind) of each address it owns."""
    restart: RestartPolicy = NO_RESTARTS


def setup(program: Program) -> list[WorkerDraft]:
    """The workers of a program, in the order in which its groups were opened."""
    workers: list[WorkerDraft] = []
    for label, nodes in program.groups.items():
        group, count = program.group_options(label), len(nodes)
        for index, node in enumerate(nodes):
            name = f"{label}-{index}"
            members = [(f"{label}.nodes[{i}]", member) for i, member in enumerate(node.members())]
            for each in (node, *node.members()):
                try:
                    each.check_definition()
                except DefinitionError as error:
                    raise DefinitionError(f"{error} It was added at {each.added_at}.") from None
            policy = group.restart
            drafts = [(name, node, members or [(label, node)])]
            if isinstance(node, MultiProcessingColocation):
                policy = node.restart or policy
                drafts = [(f"{name}.{i}", part[1], [part]) for i, part in enumerate(members)]
            for worker, whole, parts in drafts:
                addresses = tuple(
                    (a.uid, f"{worker}/{f'{i}.' if len(parts) > 1 else ''}{a.role}", a.kind)
                    for i, (_, part) in enumerate(parts)
                    for a in part.addresses
                )
                workers.append(
                    WorkerDraft(worker, group, index, count, whole, tuple(parts), addresses, policy)
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
    state: str | os.PathLike[str] | None = None,
    preload: Preload = None,
) -> LaunchPlan:
    """The plan of a program on a backend, as `lp.plan` describes it."""
    of_program = compat.of_groups(local_resources, program)
    processes = _checked("local_resources", of_program, PythonProcess, program)
    at_launch = _checked("resources", resources, Resources, program)
    if isinstance(restart, RestartPolicy):
        restart = dict.fromkeys(program.groups, restart)
    policies = _checked("restart", restart, RestartPolicy, program)
    for label, policy in policies.items():
        if program.group_options(label).main:
            refuse_endless_main(label, policy)
    workers = [replace(w, restart=policies.get(w.group.label, w.restart)) for w in setup(program)]
    preloads = _preloads(preload, program)
    calls = _checked_edges(workers)
    orderings = _orderings(calls)
    uids = {uid: name for worker in workers for uid, name, _ in worker.addresses}
    edges = frozenset(id(found.value) for of_worker in calls.values() for found, _ in of_worker)
    packer = Packer(uids, edges)
    plans = []
    for worker in workers:
        label, given = worker.group.label, worker.group.resources
        source = f"program.group({label!r}, resources=…)"
        if label in at_launch:
            given, source = at_launch[label], f"resources={{{label!r}: …}} at launch"
        process = _process_of(label, source, given, processes.get(label, PythonProcess()))
        packed = _packed(worker, backend, packer)
        plans.append(
            WorkerPlan(
                name=worker.name,
                group=label,
                replica_index=worker.replica_index,
                num_replicas=worker.num_replicas,
                kind=repr(worker.node),
                seed=seed_of(program.name, worker.name),
                calls=tuple(dict.fromkeys(target for _, target in calls[worker.name])),
                endpoints={n: backend.endpoint(n, kind) for _, n, kind in worker.addresses},
                env=process.env,
                args=process.argv(),
                python=process.python,
                resources=given,
                main=worker.group.main,
                restart=worker.restart,
                preload=preloads[label],
                ordering=orderings.get(worker.name),
                serves_until=worker.group.serves_until,
                stops_last=all(node.stops_last for _, node in worker.nodes),
                added_at=worker.node.added_at,
                payload=packed.stream,
                buffers=packed.buffers,
                setup=tuple(
                    packer.pack_setup(owner, function)
                    for owner, function in (
                        (f"program {program.name!r}", program.setup),
                        (f"group {label!r}", worker.group.setup),
                    )
                    if function is not None
                ),
            )
        )
    served = (
        node.create_handle()
        for worker in workers
        for _, node in worker.nodes
        if any(address.kind == COURIER for address in node.addresses)
    )
    options = dict(each.client_options for each in served if isinstance(each, CourierHandle))
    client_options = {uids[uid]: of_client for uid, of_client in options.items() if uid in uids}
    modules = (type(node).__module__ for worker in workers for _, node in worker.nodes)
    ours = tuple(dict.fromkeys(m for m in modules if m.startswith(_OURS)))
    notes: list[str] = []
    if not backend.shares_process:
        notes.append(random_numbers.note(each.name for each in packer.generators.values()))
        if not any(worker.setup for worker in plans):
            notes.append(left_behind.note())
    planned = LaunchPlan(
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
        # A later attempt is to begin with what the arrays hold now.
        large_buffers.keep_copies(planned.large_buffers)
    return backend.assign(planned)


def _orderings(calls: Mapping[str, list[tuple[Found, str]]]) -> dict[str, Ordering]:
    """Worker → how its calls are ordered, as the handles of it say that others hold."""
    orderings: dict[str, Ordering] = {}
    for caller, found in calls.items():
        for handle, target in found:
            ordering = getattr(handle.value, "ordering", None)
            if ordering is not None and orderings.setdefault(target, ordering) != ordering:
                raise DefinitionError(
                    f"{caller} holds a handle of {target} at {handle.path} that goes through {ordering!r},"
                    f" and another one goes through {orderings[target]!r}: a server has one order of calls"
                )
    return orderings


def _preloads(given: Preload, program: Program) -> dict[str, tuple[str, ...]]:
    """Label → what is imported before its workers are forked: what its group has, and launch is given."""
    by_label = given if isinstance(given, Mapping) else dict.fromkeys(program.groups, given or ())
    found = {}
    for label, group in ((label, program.group_options(label)) for label in program.groups):
        names = (*group.preload, *checked_modules(by_label.get(label, ())))
        found[label] = tuple(dict.fromkeys(names))
    if unknown := set(by_label) - set(program.groups):
        raise DefinitionError(
            f"preload names a group {min(unknown)!r}; program {program.name!r} has {list(program.groups)}"
        )
    return found


def _checked_folder(state: str | os.PathLike[str]) -> str:
    place = os.fspath(state) if isinstance(state, str | os.PathLike) else ""
    if not isinstance(place, str) or not place.strip():
        raise DefinitionError(f"state= is the path or URL of a folder, got {state!r}")
    return place


def _checked(
    name: str, given: Mapping[str, _T] | None, kind: type[_T], program: Program
) -> dict[str, _T]:
    """What launch was given by label; DefinitionError: a wrong type, or a label the program does not have."""
    for label, value in (given or {}).items():
        if label not in program.groups:
            raise DefinitionError(
                f"{name} names a group {label!r};"
                f" program {program.name!r} has {list(program.groups)}"
            )
        if not isinstance(value, kind):
            raise DefinitionError(f"{name}[{label!r}] must be lp.{kind.__name__}(…), got {value!r}")
    return dict(given or {})


def _process_of(
    label: str, source: str, resources: Resources, process: PythonProcess
) -> PythonProcess:
    """What a process gets of its group's resources, which `source` sets, and of `local_resources`."""
    # The text in a user's program that sets something → what it sets.
    sources: dict[str, Resources | PythonProcess] = {source: resources}
    sources[f"local_resources[{label!r}]"] = process
    env: dict[str, str] = {}
    origin: dict[str, str] = {}
    for source, given in sources.items():
        for name, value in given.env.items():
            if name in env:
                values = {origin[name]: env[name], source: str(value)}
                raise _set_twice(f"the environment variable {name}", label, values)
            env[name], origin[name] = str(value), source
    if resources.gpus and VISIBLE in env:
        of_gpus = f"Resources(gpus={resources.gpus:g})"
        values = {origin[VISIBLE]: env[VISIBLE], of_gpus: "the GPUs it gets"}
        raise _set_twice(f"the environment variable {VISIBLE}", label, values)
    pythons = {source: given.python for source, given in sources.items() if given.python}
    if len(pythons) > 1:
        raise _set_twice("the Python", label, pythons)
    return PythonProcess(process.args, env, next(iter(pythons.values()), ""))


def _set_twice(what: str, label: str, values: Mapping[str, str]) -> DefinitionError:
    listed = ", and ".join(f"{value!r} by {source}" for source, value in values.items())
    return DefinitionError(f"{what} of group {label!r} is set by two sources: {listed}. Keep one.")


def _packed(worker: WorkerDraft, backend: Backend, packer: Packer) -> Packed:
    """The worker's executable as bytes, not larger than the backend can carry."""
    for label, node in worker.nodes:
        for where, value in node.arguments().items():
            found = contains_itself(value, f"{label}.{where}")
            if found is not None:
                raise PayloadError(
                    f"{worker.name} ({node!r}, added at {node.added_at}) cannot be sent to its worker because"
                    f" of {found.path}: a {qualified(type(found.value))} that contains itself",
                    node=worker.name,
                    path=found.path,
                )
    label, _ = worker.nodes[0]
    packed = Packed(b"", ())
    failed: PayloadError | None = None
    try:
        packed = packer.pack(worker.node, worker.name, label)
    except PayloadError as error:
        failed = error
    # Outside of the handler, so that the errors are no chain.
    if failed is not None:
        for label, node in worker.nodes:  # the member that it is about has an error of its own
            packer.pack(node, worker.name, label)
        raise failed
    if packed.nbytes <= backend.max_payload_bytes:
        return packed
    members = [pair for label, node in worker.nodes for pair in packer.largest(node, label)]
    largest = sorted(members, key=lambda member: -member[1])[:5]
    listed = ", ".join(f"{path} {size:,} B" for path, size in largest)
    raise DefinitionError(
        f"{worker.name} ({worker.node!r}, added at {worker.node.added_at}) takes {packed.nbytes:,} bytes"
        f" to send, more than the {backend.max_payload_bytes:,} that this backend carries. Its largest"
        f" members: {listed}. Load them where the node runs, in the constructor or with"
        " lp.Deferred(fn, …)."
    )


def _checked_edges(workers: list[WorkerDraft]) -> dict[str, list[tuple[Found, str]]]:
    """Worker → its handles, each with the worker it is of; each must be of a node of this program."""
    names = {id(node): worker.name for worker in workers for _, node in worker.nodes}
    edges: dict[str, list[tuple[Found, str]]] = {worker.name: [] for worker in workers}
    for worker in workers:
        for found in (f for label, node in worker.nodes for f in handles_in(node, label)):
            target = found.value.node
            holds = f"{worker.name} holds a handle at {found.path} of {target!r}, which"
            if id(target) not in names:
                owner = "was never added to a program"
                if target.added_at:
                    owner = f"was added to {target.added_to} at {target.added_at}"
                raise DefinitionError(
                    f"{holds} {owner}: it will not run here. Add the node to this program, once."
                )
            if not found.value.can_be_dereferenced:
                raise DefinitionError(
                    f"{holds} serves nothing and cannot be called. Make it a CourierNode, or do not pass"
                    " its handle."
                )
            edges[worker.name].append((found, names[id(target)]))
    return edges
