"""The graph: a summation server beside each worker, on its machine, and one on each spare machine.

    machine of worker 0 … n-1                      spare machine 0 … k-1
    ┌────────┐ pushes   ┌────────┐                 ┌────────┐
    │ worker │ ───────▶ │ server │ ◀─── workers ──▶│ server │
    │        │ ◀─────── │        │                 │        │
    └────────┘ sums     └────────┘                 └────────┘

Every worker has an edge to every server. Servers have edges back, which they use when they are started again.
"""

from __future__ import annotations

import launchpad as lp
from examples._shared.problem import Problem
from examples.systems.byteps.placement import placement
from examples.systems.byteps.server import SummationServer
from examples.systems.byteps.worker import Options, Worker


def make_program(
    problem: Problem,
    spares: int,
    options: Options | None = None,
    kill_at: int | None = None,
) -> lp.Program:
    """Return the graph for some spare machines. The server of the first one may be killed at a step."""
    if kill_at is not None and kill_at + 1 >= problem.steps:
        why = f"no server can be killed after step {kill_at} of {problem.steps}, the last"
        raise ValueError(why)
    n = problem.workers
    workers = [lp.CourierNode(Worker) for _ in range(n)]
    handles = [worker.create_handle() for worker in workers]
    nodes = [
        lp.CourierNode(SummationServer, i, handles, kill_at if i == n else None)
        for i in range(n + spares)
    ]
    servers = [node.create_handle() for node in nodes]

    program = lp.Program("byteps")
    with program.group("worker"):
        for worker, beside in zip(workers, nodes, strict=False):
            worker.configure(problem, servers, placement(n, spares), options or Options())
            program.add_node(lp.MultiThreadingColocation([beside, worker]))
    with program.group("spare", restart=lp.RestartPolicy(), serves_until="program"):
        for node in nodes[n:]:
            program.add_node(node)
    return program
