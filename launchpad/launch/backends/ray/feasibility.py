"""A check that a cluster can ever hold a program, and the arithmetic that shows why it can't. Pure.

The check ignores other programs. Even if there is enough of everything in total, it may be impossible to
divide the workers over the nodes. The check tries to divide them, and leaves that to Ray if there are too
many ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from launchpad.courier import formatting
from launchpad.launch.backends.ray.cluster import ClusterNode
from launchpad.launch.backends.ray.placement_group import BundleGroup
from launchpad.launch.devices.device import VISIBLE
from launchpad.launch.devices.shortage import unused
from launchpad.launch.plan import WorkerPlan

_MAX_STEPS = 20_000
"""The most attempts to find a node for a bundle."""

_NEAR_ZERO = 1e-6

Bundle = Mapping[str, float]


def refusal(bundle_groups: Sequence[BundleGroup], nodes: Sequence[ClusterNode]) -> str:
    """Return why these groups can never fit on these nodes, even if nothing else runs there; else empty.

    Example:
        refusal(bundle_groups_of(plan.workers), cluster.nodes())
        # "learner 2×4 + actor 8×0.25 = 10 GPU, and the cluster has 8: 4 on 10.0.0.5, 4 on 10.0.0.6"
    """
    # Each entry must fit on one node: a worker's own bundle, or with STRICT_PACK all bundles of a group
    # together.
    indivisible: list[tuple[str, Bundle]] = []
    for group in bundle_groups:
        if group.strategy == "STRICT_PACK":
            indivisible.append((group.name, _whole(group)))
        else:
            indivisible += zip(group.workers, group.bundles, strict=True)
    why = _too_little(bundle_groups, indivisible, nodes) or _unlabelled(bundle_groups, nodes)
    if why:
        return why
    for group in bundle_groups:
        if group.strategy == "STRICT_SPREAD" and len(group.workers) > len(nodes):
            return (
                f"{group.name} has {len(group.workers)} workers that want a node each, and the cluster has"
                f" {len(nodes)}"
            )
    indivisible.sort(key=lambda each: sorted(each[1].values(), reverse=True), reverse=True)
    if _can_be_divided([bundle for _, bundle in indivisible], nodes):
        return ""
    requests = ", ".join(f"{worker} {_listed(bundle)}" for worker, bundle in indivisible)
    countable = ("CPU", "GPU", "memory")
    has = ", ".join(
        f"{node.ip} {_listed({n: much for n, much in node.resources.items() if n in countable})}"
        for node in nodes
    )
    return f"no way to divide the workers over the nodes: {requests}; the cluster has {has}"


def unused_gpus(workers: Sequence[WorkerPlan], nodes: Sequence[ClusterNode]) -> str:
    """Return a note for the user if the cluster has GPUs and no worker gets any; else empty."""
    count = sum(node.resources.get("GPU", 0.0) for node in nodes)
    requests = [(worker.resources.gpus, worker.process.env.get(VISIBLE)) for worker in workers]
    return unused(requests, f"and the cluster has {count:g}") if count else ""


def _too_little(
    bundle_groups: Sequence[BundleGroup],
    indivisible: Sequence[tuple[str, Bundle]],
    nodes: Sequence[ClusterNode],
) -> str:
    """Return why there is too little of something, in total or on any one node; empty if there is enough."""
    names = {name for group in bundle_groups for bundle in group.bundles for name in bundle}
    for name in sorted(names):
        total = 0.0
        terms = []
        for group in bundle_groups:
            amounts = [bundle[name] for bundle in group.bundles if bundle.get(name)]
            total += sum(amounts)
            if len(set(amounts)) == 1:
                terms.append(f"{group.name} {len(amounts)}×{_amount(name, amounts[0])}")
            elif amounts:
                terms.append(f"{group.name} {_amount(name, sum(amounts))}")
        has = [node.resources.get(name, 0.0) for node in nodes]
        if total > sum(has) + _NEAR_ZERO:
            return (
                f"{' + '.join(terms)} = {_listed({name: total})}, and the cluster has"
                f" {_there(name, nodes)}"
            )
        for worker, bundle in indivisible:
            if bundle.get(name, 0.0) > max(has, default=0.0) + _NEAR_ZERO:
                return (
                    f"{worker} asks for {_listed({name: bundle[name]})} on one node, and the cluster has"
                    f" {_there(name, nodes)}"
                )
    return ""


def _unlabelled(bundle_groups: Sequence[BundleGroup], nodes: Sequence[ClusterNode]) -> str:
    """Return a text if no node has a group's labels; else empty. Ray itself checks `!a` and `in(a, b)`."""
    for group in bundle_groups:
        labels = {n: v for n, v in group.labels.items() if "(" not in v and not v.startswith("!")}
        if labels and not any(labels.items() <= node.labels.items() for node in nodes):
            text = ", ".join(f"{name}={value}" for name, value in labels.items())
            has = []
            # Show the labels that people gave, without Ray's own.
            for node in nodes:
                own = {n: v for n, v in node.labels.items() if not n.startswith("ray.io/")}
                has.append(f"{node.ip} {own}")
            return f"no node has the labels that {group.name} wants, {text}; there are: {'; '.join(has)}"
    return ""


def _can_be_divided(bundles: Sequence[Bundle], nodes: Sequence[ClusterNode]) -> bool:
    """Search for a way to give each bundle a node. Also return True if there are too many ways to try."""
    free: list[Bundle] = [node.resources for node in nodes]
    # For each bundle so far, the ways that were not tried yet.
    ways = [iter([free])]
    for _ in range(_MAX_STEPS):
        # When a bundle has no more ways, the one before it must try its next.
        way = next(ways[-1], None)
        while way is None:
            ways.pop()
            if not ways:
                return False
            way = next(ways[-1], None)
        if way and len(ways) > len(bundles):
            return True
        if way:
            ways.append(_ways(bundles[len(ways) - 1], way))
    return True


def _ways(bundle: Bundle, free: list[Bundle]) -> Iterator[list[Bundle]]:
    """Yield for each node what stays free if it gets the bundle; empty if it can't, or its like was tried."""
    tried: list[Bundle] = []
    for i, has in enumerate(free):
        if has in tried or any(has.get(n, 0.0) + _NEAR_ZERO < bundle[n] for n in bundle):
            yield []
        else:
            tried.append(has)
            remaining = {name: round(has[name] - amount, 6) for name, amount in bundle.items()}
            yield [*free[:i], {**has, **remaining}, *free[i + 1 :]]


def shortage(bundle_group: BundleGroup, nodes: Sequence[ClusterNode], free: Bundle) -> str:
    """Return a sentence that says what a group asks for, and how much of it is free now."""
    parts = [
        f"{_amount(name, much)} {name} (of {_there(name, nodes)},"
        f" {_amount(name, free.get(name, 0.0))} is free)"
        for name, much in _whole(bundle_group).items()
    ]
    return f"{bundle_group.name} asks for {' and '.join(parts)}"


def _whole(bundle_group: BundleGroup) -> dict[str, float]:
    """Return what all workers of a group ask for together."""
    names = dict.fromkeys(name for bundle in bundle_group.bundles for name in bundle)
    return {n: sum(bundle.get(n, 0.0) for bundle in bundle_group.bundles) for n in names}


def _there(name: str, nodes: Sequence[ClusterNode]) -> str:
    """Return what there is of something, in total and by node: `8: 4 on 10.0.0.5, 4 on 10.0.0.6`."""
    has = [(node.resources.get(name, 0.0), node.ip) for node in nodes]
    parts = ", ".join(f"{_amount(name, much)} on {ip}" for much, ip in has if much)
    total = _amount(name, sum(much for much, _ in has))
    return f"{total}: {parts}" if parts else total


def _amount(name: str, much: float) -> str:
    """Return a number of CPUs or GPUs, or an amount of memory."""
    return formatting.size(much) if name == "memory" else f"{round(much, 3):g}"


def _listed(bundle: Bundle) -> str:
    """Return a bundle as text: `2 GPU and 8 GiB of memory`."""
    units = {"memory": "of memory"}
    return " and ".join(f"{_amount(n, much)} {units.get(n, n)}" for n, much in bundle.items())
