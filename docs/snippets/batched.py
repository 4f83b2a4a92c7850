"""Many actors, one policy, one call of the network for all who ask at about the same time."""

import launchpad as lp
import numpy as np


# part: policy
class Policy:
    def __init__(self):
        self._weights = np.array([[1.0, 0.0], [0.0, -1.0], [0.0, 0.0]])
        self._batches = []

    @lp.batched_handler(batch_size=8)
    def act(self, observation, *, actor):
        self._batches.append(len(actor))
        assert observation.shape == (len(actor), 3)  # the observations of all, as one array
        scores = observation @ self._weights
        notes = [f"for {name}" for name in actor]  # strings come and go as lists
        return {"action": scores.argmax(axis=1), "scores": scores, "note": notes}

    def largest_batch(self):
        return max(self._batches)


# part: actors
def ask(policy):
    futures = [
        policy.futures.act(np.array([i, 3.0, 0.0]), actor=f"actor-{i}") for i in range(16)
    ]  # sixteen callers might be sixteen processes: it is the same
    answers = [future.result() for future in futures]
    print(answers[2]["action"], answers[2]["scores"], answers[2]["note"])
    print("batches of up to", policy.largest_batch())

    misfit = policy.futures.act(np.zeros(4), actor="actor-x")  # the others have 3
    good = [policy.futures.act(np.zeros(3), actor="actor-y") for _ in range(7)]
    try:
        misfit.result()
    except ValueError as error:
        print("caught:", str(error).split(". ")[0])
    print("the others were answered:", len([future.result() for future in good]))


# part: program
program = lp.Program("policy")
policy = program.add_node(lp.CourierNode(Policy), label="policy")
program.add_node(lp.PyNode(ask, policy), label="asker")
lp.launch(program)
# end
