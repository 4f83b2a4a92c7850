"""Two programs: one profiles the layers, and one has the pipelines of some plans.

        activations ▶            activations ▶
stage 0 ───────────── stage 1 ×2 ───────────── stage 2        minibatch m is done by replica m mod 2
        ◀ gradients    ▲      ▼  ◀ gradients
                    each other's gradients
"""

from collections.abc import Mapping
from dataclasses import replace

import launchpad as lp
from examples._shared.problem import Problem
from examples._shared.profiler import profile
from examples.systems.pipedream.algorithm import Layers, Plan, cut
from examples.systems.pipedream.stage import Stage


def make_profiling(problem: Problem) -> lp.Program:
    """Return the program that profiles the layers: one worker, whose result is the profile."""
    program = lp.Program("profile")
    program.add_node(lp.PyNode(profile, problem.network, problem.batch(0).inputs), label="profiler")
    return program


def make_program(problem: Problem, plans: Mapping[str, Plan]) -> lp.Program:
    """Return the program with a group of workers for each plan. In a group "killed", stage 1 is killed."""
    program = lp.Program("pipedream")
    for name, plan in plans.items():
        n_planned = sum(part.layers for part in plan)
        n_layers = len(problem.network.sizes)
        if n_planned != n_layers:
            raise ValueError(f"a plan for {n_planned} layers; the network has {n_layers}")
        for _, n in plan:
            if problem.steps % n:
                raise ValueError(f"{problem.steps} minibatches aren't whole rounds of {n} replicas")
        parts = cut(problem.network, plan, problem.first_parameters)
        nodes = [[lp.CourierNode(Stage) for _ in range(part.replicas)] for part in plan]
        workers = [node.create_handle() for of_stage in nodes for node in of_stage]
        with program.group(name, restart=lp.RestartPolicy(scope="group"), serves_until="group"):
            begin = 0
            for k, part in enumerate(plan):
                network = problem.network.part(begin, begin + part.layers)
                begin += part.layers
                # Only the workers at the ends of the pipeline see the data.
                training = problem.training if k in (0, len(plan) - 1) else problem.training[:0]
                own = replace(problem, network=network, training=training)
                layers = Layers(network, k, {0: parts[k]})
                killed_at = problem.steps // 2 if (name, k) == ("killed", 1) else None
                for node in nodes[k]:
                    node.configure(own, plan, layers, workers, killed_at)
                    program.add_node(node)
    return program
