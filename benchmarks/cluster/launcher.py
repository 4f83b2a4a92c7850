"""A launcher of servers on Kubernetes, in a process of its own."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

import launchpad as lp
from benchmarks.harness.programs import FOREVER, launch, replicas


class Server:
    """The object of each worker. It is never built, because no container runs."""

    def echo(self, value: int) -> int:
        return value


def serve(kubeconfig: str, n_pods: int, pipe: Connection) -> None:
    """Launch a program of this many servers, and answer questions until the pipe closes."""
    os.environ["KUBECONFIG"] = kubeconfig
    program = replicas("server", n_pods, lambda: lp.CourierNode(Server), FOREVER)
    pipe.send("ready")
    assert pipe.recv() == "launch"
    running = launch(program, "kubernetes", image="simulated:1")
    while True:
        match pipe.recv():
            case "look":
                rows = running.status()
                n_running = sum(row.state == "running" for row in rows)
                pipe.send((n_running, sum(row.attempt for row in rows)))
            case "stop":
                running.stop()
                pipe.send("stopped")
