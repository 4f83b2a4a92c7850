"""The parts of Acme: an actor acts and inserts experience; a learner samples experience and learns.

    environment ◀──action── actor ──steps──▶ experience ──batches──▶ learner
         └──observation──────▶ ▲◀──────────────variables────────────────┘

In one process the two take turns (alone.py). In a program each is in a worker of its own (workers.py).
Neither of them knows which it is.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

import launchpad as lp
from examples._shared.adam import adam
from examples._shared.data import Array
from examples._shared.environments import Environment
from examples._shared.networks import Network, layers_of

TABLE = "steps"
REFRESH_PERIOD = 32  # in steps of an actor
TARGET_PERIOD = 50  # in steps of the learner
RECORD_PERIOD = 25
VERSIONS = 16  # that a learner keeps for evaluation


class Variables(NamedTuple):
    """The parameters that an actor acts by, and the learner's step that made them."""

    parameters: Array
    step: int

    def get_variables(self) -> "Variables":
        return self  # as a source that never changes


class Steps(NamedTuple):
    """Successive steps of an actor: an item of experience. The arrays of a batch have one more axis in front.

    The discount is 0 if the episode can't go on. `chance` is that of the action, by variables of `version`.
    """

    observation: Any
    action: Any
    reward: Any
    next_observation: Any
    discount: Any
    is_last: Any
    chance: Any
    version: Any


class Agent(Protocol):
    """A method of acting and learning. Its network has an output for each action, and perhaps more."""

    name: str
    environment: Environment
    network: Network
    item_length: int
    batch_size: int

    def make_table(self) -> lp.replay.Table: ...

    def explore(self, outputs: Array, n_steps: int, rng: np.random.Generator) -> tuple[int, float]:
        """Return an action and its chance."""

    def gradient(self, online: Array, target: Array, batch: Steps) -> Array:
        """Return the gradient of the loss by the online parameters. The target's are older."""


class Actor:
    """An actor. Without a place for its experience it takes the best actions only."""

    def __init__(self, agent: Agent, source: Any, experience: Any = None, seed: int = 0) -> None:
        self._agent = agent
        self._source = source
        self._experience = experience
        self._rng = np.random.default_rng(seed)
        self._n_steps = 0
        self._steps: list[Steps] = []
        self._variables: Variables = source.get_variables()

    def select_action(self, observation: Array) -> int:
        inputs = observation[np.newaxis]
        outputs = self._agent.network.forward(self._variables.parameters, inputs)[-1][0]
        if self._experience is None:
            return int(outputs[: self._agent.environment.n_actions].argmax())
        action, self._chance = self._agent.explore(outputs, self._n_steps, self._rng)
        return action

    def observe(self, *fields: Any) -> None:
        """Take the first six fields of `Steps`, which say what came of the action."""
        if self._experience is not None:
            self._steps.append(Steps._make([*fields, self._chance, self._variables.step]))
            if len(self._steps) == self._agent.item_length:
                item = Steps(*map(np.array, zip(*self._steps, strict=True)))
                self._experience.insert(item, {TABLE: 1.0})
                self._steps = []

    def update(self) -> None:
        """Take newer variables, now and then."""
        self._n_steps += 1
        if self._n_steps % REFRESH_PERIOD == 0:
            self._variables = self._source.get_variables()


def run_episode(made: Any, actor: Actor) -> float:
    """Play an episode in gymnasium's environment, and return the sum of the rewards."""
    total = 0.0
    is_last = False
    observation = made.reset()[0]
    while not is_last:
        action = actor.select_action(observation)
        after, reward, is_over, is_late, _ = made.step(action)
        is_last = is_over or is_late
        actor.observe(observation, action, reward, after, float(not is_over), is_last)
        actor.update()
        observation = after
        total += reward
    return total


class Record(NamedTuple):
    """The batch and the gradient of the step after this one, for the checks."""

    step: int
    parameters: Array
    batch: Steps
    gradient: Array


class Learner:
    """A learner, which follows the agent's gradient. Pickled, it can go on in another process."""

    def __init__(self, agent: Agent, seed: int, last: int) -> None:
        self._agent = agent
        self.last = last  # the step at which it should end
        self.online = agent.network.first_parameters(seed)
        layers_of(agent.network, self.online)[-1][:] *= 0.1
        self.target = self.online
        self.steps = 0
        self.records: list[Record] = []
        self.versions = [self.get_variables()]
        self._moments = np.zeros((2, self.online.size))

    def get_variables(self) -> Variables:
        return Variables(self.online, self.steps)

    def step(self, experience: Any) -> None:
        """Learn from a batch of the experience."""
        batch = experience.sample_batch(TABLE, self._agent.batch_size).data
        gradient = self._agent.gradient(self.online, self.target, batch)
        if self.steps % RECORD_PERIOD == 0:  # keep those of the beginning and of the end
            record = Record(self.steps, self.online, batch, gradient)
            self.records = [*self.records[:8], *self.records[8:][-8:], record]
        self.steps += 1
        change, self._moments = adam(self._moments, gradient, self.steps, rate=1e-3)
        self.online = self.online + change
        if self.steps % TARGET_PERIOD == 0:
            self.target = self.online
        if self.steps % max(1, self.last // VERSIONS) == 0:
            self.versions.append(self.get_variables())


class Result(NamedTuple):
    """The learner at the end, the step from which its last attempt went on, and the counts of the table."""

    learner: Learner
    began_at: int
    table: lp.replay.TableInfo
