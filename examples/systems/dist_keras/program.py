"""Workers train a replica each, and exchange with a centre when their rule says so.

    worker × n ──pull, commit(delta)──▶ server of each rule

None waits for another, but where a rule begins, and in averaging. The servers of all rules are threads of
one process. If it is killed, they go on where they had answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import threadpoolctl

import launchpad as lp
from examples._shared.digits import Array
from examples.systems.dist_keras.algorithm import Centre
from examples.systems.dist_keras.server import Server
from examples.systems.dist_keras.training import Training

LAG_S = 0.001  # by how much a worker's calls arrive later than those of the one before it


class Link:
    """A worker's way to the server of a rule; remembers of each commit what had been seen."""

    def __init__(self, server: lp.CourierClient[Server], worker: int) -> None:
        self._server, self._worker = server, worker
        self._pulled = server.pull(0)
        self.seen: list[int] = []

    def pull(self) -> Array:
        if self.seen:
            self._pulled = self._server.pull(len(self.seen))
        return self._pulled[0]

    def commit(self, delta: Array) -> None:
        self._server.commit(self._worker, len(self.seen), delta, self._pulled[1])
        self.seen.append(self._pulled[1])


@dataclass(frozen=True)
class Trained:
    """What a worker returns of a rule: its replica, and what it had seen at each commit; and the server's."""

    replica: Array
    seen: list[int]
    centre: Centre
    attempt: int


def work(training: Training, servers: Mapping[str, lp.CourierClient[Server]]) -> dict[str, Trained]:
    """Train a replica by each rule."""
    threadpoolctl.threadpool_limits(1)  # with more, the bits depend on how many
    worker = lp.current().replica_index
    replicas, links = {}, {}
    for name, rule in training.rules.items():
        replica, link = training.replica(rule, worker), Link(servers[name], worker)
        lp.barrier(f"{name}: all have pulled")  # so that all but the first to commit are stale
        for _ in range(training.rounds(rule)):
            link.commit(replica.round(link.pull))
        replicas[name], links[name] = replica.parameters, link.seen
    lp.barrier("all have trained")
    return {
        name: Trained(replicas[name], links[name], *servers[name].trained()) for name in servers
    }


def make_program(
    training: Training,
    kill: str = "",
    order: lp.edges.Record | lp.edges.Replay | None = None,
    lags_reversed: bool = False,
) -> lp.Program:
    """Return the graph.

    Args:
        kill: The servers of all rules are killed when half of the commits by this one are in.
        order: What keeps the order of the servers' calls, or keeps to it.
        lags_reversed: Whether the calls of the first worker arrive the latest, and not those of the last.
    """
    workers, servers = training.problem.workers, {}
    for name, rule in training.rules.items():
        half = workers * training.rounds(rule) // 2
        servers[name] = lp.CourierNode(Server, training.centre(rule), half if name == kill else 0)
    handles = {name: server.create_handle() for name, server in servers.items()}
    program = lp.Program("dist-keras")
    with program.group("server", restart=lp.RestartPolicy()):
        program.add_node(lp.MultiThreadingColocation(list(servers.values())))
    with program.group("worker"):
        for worker in range(workers):
            lag = workers - 1 - worker if lags_reversed else worker
            late = [lp.edges.Delay(LAG_S * lag)] if lag else []
            ways = late if order is None else [*late, order]
            own = {name: handle.through(*ways) for name, handle in handles.items()}
            program.add_node(lp.PyNode(work, training, own))
    return program
