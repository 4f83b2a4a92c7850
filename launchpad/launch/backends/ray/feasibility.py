"""Room: whether a cluster can ever hold a program, and the arithmetic when it cannot. Pure.

Sums and largest nodes only; whether workers can be divided over the nodes is for Ray to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from launchpad.launch.backends.ray.bundles import BundleGroup
from launchpad.launch.backends.ray.cluster import ClusterNode

_NEAR_ZERO = 1e-6

Bundle = Mapping[str, float]


def refusal(bundle_groups: Sequence[BundleGroup], nodes: Sequence[ClusterNode]) -> str:
    """Why these gangs do not fit on these nodes, even if nobody else were there; empty if they might.

    Example:
        refusal(gangs_of(plan.workers), cluster.nodes())
        # "learner 2×4 + actor 8×0.25 = 10 GPU, and the cluster has 8: 4 on 10.0.0.5, 4 on 10.0.0.6"
    """
    for name in sorted(
        {
            name
            for bundle_group in bundle_groups
            for bundle in bundle_group.bundles
            for name in bundle
        }
    ):
        why = _too_much(name, bundle_groups, nodes) or _too_large(name, bundle_groups, nodes)
        if why:
            return why
    if why := _unlabelled(bundle_groups, nodes):
        return why
    for bundle_group in bundle_groups:
        if bundle_group.strategy == "STRICT_SPREAD" and len(bundle_group.workers) > len(nodes):
            return (
                f"{bundle_group.name} has {len(bundle_group.workers)} workers that want a node each,"
                f" and the cluster has {len(nodes)}"
            )
    return ""


def _unlabelled(bundle_groups: Sequence[BundleGroup], nodes: Sequence[ClusterNode]) -> str:
    """One wants nodes with labels that none has. Conditions, `!a` and `in(a, b)`, are Ray's to judge."""
    for bundle_group in bundle_groups:
        wanted = {
            n: v for n, v in bundle_group.labels.items() if "(" not in v and not v.startswith("!")
        }
        if wanted and not any(wanted.items() <= node.labels.items() for node in nodes):
            text = ", ".join(f"{name}={value}" for name, value in wanted.items())
            has = "; ".join(f"{node.ip} {_own(node.labels)}" for node in nodes)
            return (
                f"no node has the labels that {bundle_group.name} wants, {text}; there are: {has}"
            )
    return ""


def _own(labels: Mapping[str, str]) -> str:
    """The labels that people gave: Ray's own begin with `ray.io/`."""
    return str({name: value for name, value in labels.items() if not name.startswith("ray.io/")})


def _too_much(name: str, bundle_groups: Sequence[BundleGroup], nodes: Sequence[ClusterNode]) -> str:
    """All together ask for more of it than there is."""
    asked = sum(
        bundle.get(name, 0.0) for bundle_group in bundle_groups for bundle in bundle_group.bundles
    )
    if asked <= sum(node.resources.get(name, 0.0) for node in nodes) + _NEAR_ZERO:
        return ""
    terms = " + ".join(
        term for bundle_group in bundle_groups if (term := _term(name, bundle_group))
    )
    return (
        f"{terms} = {amount(name, asked)} {_unit(name)}, and the cluster has {there(name, nodes)}"
    )


def _too_large(
    name: str, bundle_groups: Sequence[BundleGroup], nodes: Sequence[ClusterNode]
) -> str:
    """One asks for more of it than any node has."""
    most = max((node.resources.get(name, 0.0) for node in nodes), default=0.0)
    for bundle_group in bundle_groups:
        for worker, bundle in _indivisible(bundle_group):
            if bundle.get(name, 0.0) > most + _NEAR_ZERO:
                asked = amount(name, bundle[name])
                return (
                    f"{worker} asks for {asked} {_unit(name)} on one node, and the cluster has"
                    f" {there(name, nodes)}"
                )
    return ""


def _indivisible(bundle_group: BundleGroup) -> Iterable[tuple[str, Bundle]]:
    """What must be on one node: each worker's own, or all of them together."""
    if bundle_group.strategy != "STRICT_PACK":
        return zip(bundle_group.workers, bundle_group.bundles, strict=True)
    names = {name for bundle in bundle_group.bundles for name in bundle}
    whole = {name: sum(bundle.get(name, 0.0) for bundle in bundle_group.bundles) for name in names}
    return [(bundle_group.name, whole)]


def _term(name: str, bundle_group: BundleGroup) -> str:
    """`learner 2×4`: so many workers of a gang ask for so much."""
    asked = [bundle[name] for bundle in bundle_group.bundles if bundle.get(name)]
    if not asked:
        return ""
    if len(set(asked)) == 1:
        return f"{bundle_group.name} {len(asked)}×{amount(name, asked[0])}"
    return f"{bundle_group.name} {amount(name, sum(asked))}"


def there(name: str, nodes: Sequence[ClusterNode]) -> str:
    """`8: 4 on 10.0.0.5, 4 on 10.0.0.6`."""
    has = [(node.resources.get(name, 0.0), node.ip) for node in nodes]
    parts = ", ".join(f"{amount(name, much)} on {ip}" for much, ip in has if much)
    total = amount(name, sum(much for much, _ in has))
    return f"{total}: {parts}" if parts else total


def amount(name: str, much: float) -> str:
    """A number of CPUs or GPUs; memory in GiB."""
    return f"{much / 2**30:.3g}" if name == "memory" else f"{round(much, 3):g}"


def _unit(name: str) -> str:
    return "GiB of memory" if name == "memory" else name
