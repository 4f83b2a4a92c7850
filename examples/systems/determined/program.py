"""The graph: a user, a master, and agents whose slots are the ranks of trials.

user ──submit──▶ master ◀──free, work, report── slot ┐
  ▲                                              ▲   │ agent × n
  └────────────────────saw───────────────── give │   │
                                                 ▼   │
                                               slot  ┘
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import launchpad as lp
from examples._shared.data import Data
from examples.systems.determined.agent import Kill, Slot
from examples.systems.determined.master import Master
from examples.systems.determined.user import Submission, User


@dataclass(frozen=True)
class Agent:
    """A machine: its slots, and its planned kills.

    Attributes:
        pool: The pool of its slots: `cpu` or `gpu`.
        kills: The attempts in which its first slot dies, and when.
    """

    slots: int = 2
    pool: str = "cpu"
    kills: dict[int, Kill] = field(default_factory=dict)


def make_program(
    data: tuple[Data, Data],
    submissions: Sequence[Submission],
    agents: Sequence[Agent],
    master_dies_at: dict[int, int] | None = None,
    port: int = 0,
) -> lp.Program:
    """Return the graph.

    Args:
        data: The digits to train on, and those that are held out.
        port: The port at which the master's host shows the page of trials; 0: any free port.
    """
    pools = pools_of(agents)
    for experiment, _ in submissions:
        has = list(pools.values()).count(experiment.pool)
        if experiment.slots > has:
            raise ValueError(
                f"a trial of {experiment.name} needs {experiment.slots} slots at once, and pool"
                f" {experiment.pool!r} has {has}: give it more agents, or the trial fewer slots"
            )
    program = lp.Program("determined")
    policy = lp.RestartPolicy(max_restarts=10)
    with program.group("master", restart=policy):
        master = program.add_node(lp.CourierNode(Master, master_dies_at, port))
    with program.group("user", serves_until="program"):
        user = program.add_node(lp.CourierNode(User, master, submissions, len(pools)))
    nodes = {name: lp.CourierNode(Slot) for name in pools}
    slots = {name: node.create_handle() for name, node in nodes.items()}
    with program.group("agent", restart=policy):
        for i, agent in enumerate(agents):
            of_agent = [nodes[f"agent-{i}.{k}"] for k in range(agent.slots)]
            for k, node in enumerate(of_agent):
                kills = {} if k else agent.kills
                node.configure(agent.pool, data, kills, master, user, slots)
            program.add_node(lp.MultiProcessingColocation(of_agent))
    return program


def pools_of(agents: Sequence[Agent]) -> dict[str, str]:
    """Return the pool of each slot, by the name of its worker."""
    return {
        f"agent-{i}.{k}": agent.pool for i, agent in enumerate(agents) for k in range(agent.slots)
    }
