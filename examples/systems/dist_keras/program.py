"""The graph: workers train a replica each, and exchange with a centre when their rule says so.

    worker × n ──pull, commit(delta)──▶ server of each rule

Workers wait for each other only when a rule begins, and in averaging. The servers of all rules are threads of
one process. If it is killed, they go on from the last update that they had acknowledged.
"""

from collections.abc import Mapping

import launchpad as lp
from examples._shared.problem import Problem
from examples.systems.dist_keras.algorithm import Rule
from examples.systems.dist_keras.server import Server
from examples.systems.dist_keras.worker import work

LAG_S = 0.001  # how much later a worker's calls arrive than those of the worker before it


def make_program(problem: Problem, rules: Mapping[str, Rule], kill: str = "") -> lp.Program:
    """Return the graph. When half of the commits of rule `kill` are in, all servers are killed."""
    servers = {}
    for name, rule in rules.items():
        half = problem.workers * (problem.steps // rule.window) // 2
        centre = rule.server(problem.first_parameters, problem.workers)
        servers[name] = lp.CourierNode(Server, centre, half if name == kill else 0)
    handles = {name: server.create_handle() for name, server in servers.items()}
    program = lp.Program("dist-keras")
    with program.group("server", restart=lp.RestartPolicy()):
        program.add_node(lp.MultiThreadingColocation(list(servers.values())))
    with program.group("worker"):
        for worker in range(problem.workers):
            lag = lp.edges.Delay(LAG_S * (worker + 1))
            own = {name: handle.through(lag) for name, handle in handles.items()}
            program.add_node(lp.PyNode(work, problem, rules, own))
    return program
