"""Wrong agents, learners and tables."""

from tests.examples.mutations import Mutation

DQN = ("--agents=dqn",)
IMPALA = ("--agents=impala",)

MUTATIONS = (
    Mutation(
        "DQN has a target network, which is older than its network",
        "algorithm.py",
        "gradient(self.online, self.target, batch)",
        "gradient(self.online, self.online, batch)",
        DQN,
    ),
    Mutation(
        "IMPALA divides the chances of actions by those of the actor's policy",
        "agents.py",
        "vtrace(values, next_values, ratios, batch)",
        "vtrace(values, next_values, np.ones_like(ratios), batch)",
        IMPALA,
    ),
    Mutation(
        "an actor notes the chance of its action",
        "agents.py",
        "return action, float(chances[action])",
        "return action, 1 / len(chances)",
        IMPALA,
    ),
    Mutation(
        "a learner goes on with the target network that it saved",
        "workers.py",
        "        self._began_at = self._learner.steps",
        "        self._began_at = self._learner.steps\n        self._learner.target = self._learner.online",
        DQN,
    ),
    Mutation(
        "actors get only variables that are saved",
        "workers.py",
        "        return self._variables",
        "        return self._learner.get_variables()",
        DQN,
    ),
    Mutation(
        "a learner follows the gradient",
        "algorithm.py",
        "rate=1e-3",
        "rate=0.0",
        DQN,
    ),
    Mutation(
        "each item is sampled 16 times on average",
        "agents.py",
        "SampleToInsertRatio(16,",
        "SampleToInsertRatio(4,",
        DQN,
    ),
)
