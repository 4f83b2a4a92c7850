"""A simulation of three restart policies, on hosts that fail once a week."""

import launchpad as lp

DAY_S = 86_400


class Learner:
    def run(self):
        """Train for twenty days."""


def act(learner, seed):
    """Collect experience until the program ends."""


# part: program
def make_program():
    program = lp.Program("training")
    with program.group("learner", main=True, resources=lp.Resources(cpus=8)):
        learner = program.add_node(lp.CourierNode(Learner))
    with program.group("actor", resources=lp.Resources(cpus=1)):
        for seed in range(32):
            program.add_node(lp.PyNode(act, learner, seed))
    return program


# part: policies
POLICIES = {
    "no restarts": lp.RestartPolicy(mode="never"),
    "restarts": lp.RestartPolicy(),
    "restarts and saves": lp.RestartPolicy(save_every_s=600),
}


# part: simulate
for title, policy in POLICIES.items():
    simulation = lp.simulate(
        make_program(),
        hosts=lp.SimulatedHosts(6, cpus=8, mtbf_s=7 * DAY_S, repair_s=3600),
        start_s={"learner": 120, "actor": 20},
        run_s={"learner": 20 * DAY_S},
        failures={"actor": 10 * DAY_S},
        restart=policy,
        seed=1,
    )
    print(f"== {title}")
    print(simulation)
# end
