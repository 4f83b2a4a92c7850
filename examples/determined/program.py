"""The graph: a user, a master, and agents whose slots are the ranks of trials.

user ──submit──▶ master ◀──free, work, report── slot 0 ┐
                                                  ▲    │ agent × n
                       observer ◀──saw── … give   ▼    │
                                                slot 1 ┘
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import launchpad as lp
from examples._shared.digits import Digits
from examples.determined.agent import Slot
from examples.determined.log import History
from examples.determined.master import Experiment, Master
from examples.determined.observer import Observer, Sight


@dataclass(frozen=True)
class Agent:
    """A machine: its slots, and what goes wrong on purpose.

    Attributes:
        pool: What its slots are: `cpu` or `gpu`.
        dies_at: In which attempt, in which epoch of its first slot.
    """

    slots: int = 2
    pool: str = "cpu"
    dies_at: dict[int, int] = field(default_factory=dict)


class Submission(NamedTuple):
    """An experiment, and how many reports the log has when it is submitted."""

    experiment: Experiment
    after: int = 0


class Found(NamedTuple):
    """What the user has at the end."""

    history: History
    seen: list[Sight]
    page: str


def use(
    master: lp.CourierClient[Master],
    observer: lp.CourierClient[Observer],
    submissions: Sequence[Submission],
) -> Found:
    """Submit experiments, and wait for them."""
    for experiment, after in submissions:
        master.wait(after)
        master.submit(experiment)
    master.close()
    master.wait()
    return Found(master.history(), observer.seen(), "")


def make_program(
    data: tuple[Digits, Digits],
    submissions: Sequence[Submission],
    agents: Sequence[Agent],
    master_dies_at: dict[int, int] | None = None,
) -> lp.Program:
    """Return the graph."""
    program, policy = lp.Program("determined"), lp.RestartPolicy(max_restarts=10)
    with program.group("master", restart=policy):
        master = program.add_node(lp.CourierNode(Master, master_dies_at))
    observer = program.add_node(lp.CourierNode(Observer), label="observer")
    nodes = [[lp.CourierNode(Slot) for _ in range(agent.slots)] for agent in agents]
    slots = {
        f"agent-{i}/{k}": node.create_handle()
        for i, of_agent in enumerate(nodes)
        for k, node in enumerate(of_agent)
    }
    with program.group("agent", restart=policy):
        for i, agent in enumerate(agents):
            for k, node in enumerate(nodes[i]):
                dies_at = {} if k else agent.dies_at
                name = f"agent-{i}/{k}"
                node.configure(name, agent.pool, data, dies_at, master, observer, slots)
            program.add_node(lp.MultiThreadingColocation(nodes[i]))
    program.add_node(lp.PyNode(use, master, observer, submissions), label="user")
    return program
