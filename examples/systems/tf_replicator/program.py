"""Deployments of a model: synchronous replicas, asynchronous ones with a server, and devices of one process.

sync:      replica-0 ⇄ replica-1 ⇄ …      all_sum, all_gather, broadcast
async:     replica × n ──gradient──▶ server ──variable──▶ the same replica
in graph:  one process, whose devices run the same step
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import launchpad as lp
from examples.systems.tf_replicator import replicas


def replicate(
    program: lp.Program,
    label: str,
    n: int,
    make: replicas.MakeModel,
    data: Any,
    steps: int,
    mode: str = "sync",
    kill_at: int | None = None,
) -> lp.Program:
    """Add a group of n replicas that train a model, and return the program.

    Args:
        make: Makes the model, from a replicator and the data.
        mode: `sync` or `async`.
        kill_at: The step at which the second of synchronous replicas kills itself.
    """
    restart = None
    make_node: Callable[[], lp.Node[Any]]
    if mode == "sync":
        kind = partial(replicas.SyncReplicator, kill_at=kill_at)
        make_node = partial(lp.CollectiveNode, replicas.train, kind, make, data, steps)
        restart = lp.RestartPolicy(scope="group")
    else:
        of_server = lp.CourierNode(replicas.ParameterServer, make, data)
        server = program.add_node(of_server, label=f"{label}_server")
        own = replicas.AsyncReplicator, make, data, steps
        make_node = partial(lp.PyNode, replicas.train, server, *own)
    with program.group(label, restart=restart):
        for _ in range(n):
            program.add_node(make_node())
    return program


def replicate_in_graph(program: lp.Program, label: str, n: int, data: Any) -> None:
    """Add one worker with n devices, each of which is a replica."""
    from examples.systems.tf_replicator.in_graph import train_in_graph  # imports jax

    env = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={n}", "JAX_ENABLE_X64": "1"}
    with program.group(label, resources=lp.Resources(env=env)):
        program.add_node(lp.PyNode(train_in_graph, data, n))
