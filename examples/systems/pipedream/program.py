"""Two programs: one profiles the layers, and one has the pipelines of some plans.

        activations ▶            activations ▶
stage 0 ───────────── stage 1 ×2 ───────────── stage 2        minibatch m is done by replica m mod 2
        ◀ gradients    ▲      ▼  ◀ gradients
                    each other's gradients
"""

import launchpad as lp
from examples._shared import networks
from examples._shared.data import Array, Data
from examples.systems.pipedream.algorithm import STASHING, Layers, Plan, cut
from examples.systems.pipedream.profiler import profile
from examples.systems.pipedream.stage import Stage

WIDTHS = (64, 64, 192, 192, 192, 10)  # two of the five layers are most of the work
RATE = 0.05
KILLED_AT = 30


class KilledStage(Stage):
    """A stage that is killed once, when minibatch `KILLED_AT` comes back to it."""

    def _backward(self, minibatch: int, gradient: Array | None) -> None:
        if minibatch == KILLED_AT and lp.current().attempt == 1:
            lp.testing.crash()
        super()._backward(minibatch, gradient)


def make_profiling(batch: Data) -> lp.Program:
    """Return the program that profiles the layers: one worker, whose result is the profile."""
    program = lp.Program("profile")
    program.add_node(lp.PyNode(profile, WIDTHS, batch.inputs), label="profiler")
    return program


def add_pipeline(
    program: lp.Program,
    label: str,
    plan: Plan,
    digits: Data,
    minibatches: int,
    rule: str = STASHING,
    is_killed: bool = False,
) -> None:
    """Add a group with the workers of a plan, one of which may be killed, in stage 1."""
    layers = sum(part.layers for part in plan)
    if layers != len(WIDTHS) - 1:
        raise ValueError(f"a plan for {layers} layers; the network has {len(WIDTHS) - 1}")
    places = [(k, replica) for k, part in enumerate(plan) for replica in range(part.replicas)]
    kinds = {1: KilledStage} if is_killed else {}
    nodes = [lp.CourierNode(kinds.get(k, Stage)) for k, _ in places]
    workers = [node.create_handle() for node in nodes]
    parts = cut(WIDTHS, plan, networks.first_parameters(WIDTHS))
    with program.group(label, restart=lp.RestartPolicy(scope="group"), serves_until="group"):
        for node, (k, replica) in zip(nodes, places, strict=True):
            widths, weights = parts[k]
            own = Layers(widths, k == len(plan) - 1, rule, RATE, {0: weights})
            mine = range(replica, minibatches, plan[k].replicas)
            # Only the workers at the ends of the pipeline see the digits.
            own_digits = digits if k in (0, len(plan) - 1) else digits[:0]
            node.configure(plan, k, mine, own, own_digits, workers)
            program.add_node(node)
