"""The graph: workers train a replica each, and exchange with a centre when their rule says so.

    worker × n ──pull, commit(delta)──▶ server of each rule

Workers wait for each other only when a rule begins, and in averaging. The servers of all rules are threads of
one process. If it is killed, they go on from the last update that they had acknowledged.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import threadpoolctl

import launchpad as lp
from examples._shared.data import Array
from examples.systems.dist_keras.algorithm import Centre
from examples.systems.dist_keras.server import Server
from examples.systems.dist_keras.training import Training

LAG_S = 0.001  # how much later a worker's calls arrive than those of the worker before it


class Link:
    """A worker's link to the server of a rule. It remembers how many updates each commit had seen."""

    def __init__(self, server: lp.CourierClient[Server], worker: int) -> None:
        self._server = server
        self._worker = worker
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
    """The result of a worker for a rule.

    Attributes:
        replica: The parameters of the worker's replica.
        seen: How many updates the worker had seen at each commit.
        centre: The server's centre at the end.
        attempt: The server's attempt at the end.
    """

    replica: Array
    seen: list[int]
    centre: Centre
    attempt: int


def work(training: Training, servers: Mapping[str, lp.CourierClient[Server]]) -> dict[str, Trained]:
    """Train a replica by each rule."""
    threadpoolctl.threadpool_limits(1)  # with more, the bits depend on how many
    worker = lp.current().replica_index
    replicas = {}
    links = {}
    for name, rule in training.rules.items():
        replica = training.replica(rule, worker)
        link = Link(servers[name], worker)
        lp.barrier(f"{name}: all have pulled")  # so that all but the first to commit are stale
        for _ in range(training.rounds(rule)):
            link.commit(replica.round(link.pull))
        replicas[name] = replica.parameters
        links[name] = link.seen
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
        kill: A rule. When half of its commits are in, the servers of all rules are killed.
        order: Records the order of the servers' calls, or keeps to a recorded order.
        lags_reversed: If True, the calls of the first worker arrive the latest. Else those of the last do.
    """
    workers = training.problem.workers
    servers = {}
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
            effects: list[lp.edges.Delay | lp.edges.Record | lp.edges.Replay] = []
            if lag:
                effects.append(lp.edges.Delay(LAG_S * lag))
            if order is not None:
                effects.append(order)
            own = {name: handle.through(*effects) for name, handle in handles.items()}
            program.add_node(lp.PyNode(work, training, own))
    return program
