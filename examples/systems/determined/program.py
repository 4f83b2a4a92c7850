"""The graph: a user, a master, and agents whose slots are the ranks of trials."""

import time

import launchpad as lp
from examples.systems.determined.algorithm import Random
from examples.systems.determined.master import Event, Master
from examples.systems.determined.slot import Slot


def make_program(
    experiments: list[Random], agents: list[int], dies_at: dict[int, int] | None = None
) -> lp.Program:
    """Return the graph. `agents` has the number of slots of each agent. The user's result is all events."""
    most = max(experiment.slots for experiment in experiments)
    if most > sum(agents):
        raise ValueError(f"a trial needs {most} slots at once, and there are {sum(agents)}")
    program = lp.Program("determined")
    policy = lp.RestartPolicy(max_restarts=10)
    with program.group("master", restart=policy):
        master = program.add_node(lp.CourierNode(Master, experiments, dies_at or {}))
    with program.group("user", main=True):
        program.add_node(lp.PyNode(wait, master))
    names = [[f"agent-{i}.{k}" for k in range(n)] for i, n in enumerate(agents)]
    nodes = {name: lp.CourierNode(Slot) for own in names for name in own}
    slots = {name: node.create_handle() for name, node in nodes.items()}
    with program.group("agent", restart=policy):
        for own in names:
            for name in own:
                nodes[name].configure(master, slots)
            program.add_node(lp.MultiProcessingColocation([nodes[name] for name in own]))
    return program


def wait(master: lp.CourierClient[Master]) -> list[Event]:
    """Return all events when all trials are closed."""
    while (events := master.events()) is None:
        time.sleep(0.05)
    return events
