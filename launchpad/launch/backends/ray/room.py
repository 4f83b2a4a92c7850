"""Room: whether a cluster can ever hold a program, and the arithmetic when it cannot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from launchpad.launch.backends.ray.cluster import Node
from launchpad.launch.backends.ray.gangs import Gang

_PATIENCE = 20_000
"""How many attempts to find room are made before it is left to Ray to find some."""

_NEAR_ZERO = 1e-6

Bundle = Mapping[str, float]


def refusal(gangs: Sequence[Gang], nodes: Sequence[Node]) -> str:
    """Why these gangs do not fit on these nodes, even if nobody else were there; empty if they might.

    Example:
      refusal(gangs_of(plan.workers), cluster.nodes())
      # "learner 2×4 + actor 8×0.25 = 10 GPU, and the cluster has 8: 4 on 10.0.0.5, 4 on 10.0.0.6"
    """
    for name in sorted({name for gang in gangs for bundle in gang.bundles for name in bundle}):
        why = _too_much(name, gangs, nodes) or _too_large(name, gangs, nodes)
        if why:
            return why
    return _unlabelled(gangs, nodes) or _misfit(gangs, nodes)


def _unlabelled(gangs: Sequence[Gang], nodes: Sequence[Node]) -> str:
    """One wants nodes with labels that none has. Conditions, `!a` and `in(a, b)`, are Ray's to judge."""
    for gang in gangs:
        wanted = {n: v for n, v in gang.labels.items() if "(" not in v and not v.startswith("!")}
        if wanted and not any(wanted.items() <= node.labels.items() for node in nodes):
            text = ", ".join(f"{name}={value}" for name, value in wanted.items())
            has = "; ".join(f"{node.ip} {_own(node.labels)}" for node in nodes)
            return f"no node has the labels that {gang.name} wants, {text}; there are: {has}"
    return ""


def _own(labels: Mapping[str, str]) -> str:
    """The labels that people gave: Ray's own begin with `ray.io/`."""
    return str({name: value for name, value in labels.items() if not name.startswith("ray.io/")})


def _too_much(name: str, gangs: Sequence[Gang], nodes: Sequence[Node]) -> str:
    """All together ask for more of it than there is."""
    asked = sum(bundle.get(name, 0.0) for gang in gangs for bundle in gang.bundles)
    if asked <= sum(node.resources.get(name, 0.0) for node in nodes) + _NEAR_ZERO:
        return ""
    terms = " + ".join(term for gang in gangs if (term := _term(name, gang)))
    return (
        f"{terms} = {amount(name, asked)} {_unit(name)}, and the cluster has {there(name, nodes)}"
    )


def _too_large(name: str, gangs: Sequence[Gang], nodes: Sequence[Node]) -> str:
    """One asks for more of it than any node has."""
    most = max((node.resources.get(name, 0.0) for node in nodes), default=0.0)
    for gang in gangs:
        for worker, bundle in _indivisible(gang):
            if bundle.get(name, 0.0) > most + _NEAR_ZERO:
                asked = amount(name, bundle[name])
                return (
                    f"{worker} asks for {asked} {_unit(name)} on one node, and the cluster has"
                    f" {there(name, nodes)}"
                )
    return ""


def _misfit(gangs: Sequence[Gang], nodes: Sequence[Node]) -> str:
    """There is enough in all, but it cannot be divided so."""
    bundles = [bundle for gang in gangs for bundle in _indivisible(gang)]
    bundles.sort(key=lambda each: sorted(each[1].values(), reverse=True), reverse=True)
    free = [dict(node.resources) for node in nodes]
    spread = next((gang for gang in gangs if _needs_more_nodes(gang, nodes)), None)
    if spread is not None:
        return (
            f"{spread.name} has {len(spread.workers)} workers that want a node each, and the cluster has"
            f" {len(nodes)}"
        )
    if _fits([bundle for _, bundle in bundles], free, [_PATIENCE]):
        return ""
    asked = ", ".join(f"{worker} {_listed(bundle)}" for worker, bundle in bundles)
    has = ", ".join(f"{node.ip} {_listed(_countable(node.resources))}" for node in nodes)
    return f"no way to divide the workers over the nodes: {asked}; the cluster has {has}"


def _needs_more_nodes(gang: Gang, nodes: Sequence[Node]) -> bool:
    return gang.strategy == "STRICT_SPREAD" and len(gang.workers) > len(nodes)


def _fits(bundles: Sequence[Bundle], free: list[dict[str, float]], left: list[int]) -> bool:
    """Whether all find room, tried one way after another; True, too, when there are too many ways."""
    if not bundles:
        return True
    tried: list[dict[str, float]] = []
    for node in free:
        left[0] -= 1
        if left[0] <= 0:
            return True
        if node in tried or not _holds(node, bundles[0]):
            continue
        tried.append(dict(node))
        _take(node, bundles[0], -1)
        if _fits(bundles[1:], free, left):
            return True
        _take(node, bundles[0], +1)
    return False


def _holds(node: Bundle, bundle: Bundle) -> bool:
    return all(node.get(name, 0.0) + _NEAR_ZERO >= asked for name, asked in bundle.items())


def _take(node: dict[str, float], bundle: Bundle, sign: int) -> None:
    for name, asked in bundle.items():
        node[name] = round(node[name] + sign * asked, 6)


def _indivisible(gang: Gang) -> Iterable[tuple[str, Bundle]]:
    """What must be on one node: each worker's own, or all of them together."""
    if gang.strategy != "STRICT_PACK":
        return zip(gang.workers, gang.bundles, strict=True)
    names = {name for bundle in gang.bundles for name in bundle}
    whole = {name: sum(bundle.get(name, 0.0) for bundle in gang.bundles) for name in names}
    return [(gang.name, whole)]


def _term(name: str, gang: Gang) -> str:
    """`learner 2×4`: so many workers of a gang ask for so much."""
    asked = [bundle[name] for bundle in gang.bundles if bundle.get(name)]
    if not asked:
        return ""
    if len(set(asked)) == 1:
        return f"{gang.name} {len(asked)}×{amount(name, asked[0])}"
    return f"{gang.name} {amount(name, sum(asked))}"


def there(name: str, nodes: Sequence[Node]) -> str:
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


def _listed(bundle: Bundle) -> str:
    return " and ".join(f"{amount(name, much)} {_unit(name)}" for name, much in bundle.items())


def _countable(resources: Bundle) -> dict[str, float]:
    return {name: much for name, much in resources.items() if name in ("CPU", "GPU", "memory")}
