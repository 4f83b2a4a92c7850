"""NStepWriter: transitions over n steps, like those of Acme's NStepTransitionAdder. Needs numpy."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from launchpad.courier.checks import is_whole
from launchpad.courier.trees import flatten, unflatten
from launchpad.replay import columns
from launchpad.replay.episode_writer import EpisodeWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from launchpad.replay.item_sender import ItemServer


class Transition(NamedTuple):
    """An action and its outcome. In a batch, each field has a new first axis.

    Example:
        batch = replay.sample_batch("transitions", batch_size=32)
        targets = batch.data.reward + 0.99 * batch.data.discount * values(batch.data.next_observation)
    """

    observation: Any
    action: Any
    reward: Any
    discount: Any
    next_observation: Any


class _RecentStep(NamedTuple):
    """A step that may still be part of a transition, with its reward and discount as arrays of float."""

    action: Any
    reward: Any
    discount: Any


class NStepWriter(EpisodeWriter):
    """A writer of transitions over n steps: (s_t, a_t, R, D, s_{t+n}).

    g is the agent's discount, and d_t is the environment's discount, which is 0 before a terminal state:

        R = r_t + g·d_t·r_{t+1} + … + g^(n-1)·d_t…d_{t+n-2}·r_{t+n-1}
        D = g^(n-1) · d_t…d_{t+n-1}

    D has one factor g less than R would suggest. The learner multiplies by this factor:
    target = R + g·D·max Q(s_{t+n}). At the start of an episode, the writer also makes shorter transitions
    from s_0, and at its end, shorter transitions to the last state. Each observation is sent once, although
    it is the first of one transition and the last of another. (Hoffman et al., "Acme", arXiv 2006.00979.)

    Example:
        with replay.n_step_writer("transitions", n=5, discount=0.99) as writer:
          writer.add_first(observation)
          while not done:
            observation, reward, done = environment.step(action := policy(observation))
            writer.add(action, reward, observation, discount=0.0 if done else 1.0, is_last=done)

    Samples are `Transition`s, with R and D as float32. Not thread-safe.

    Args:
        client: The client of the node.
        table: The table to insert into.
        n: The number of steps, at least 1.
        discount: The agent's discount g.
        priority: The priority of each new transition, or a function that computes it from a Transition of
            arrays.
        items_per_call: The number of items to collect before they are sent.

    Raises:
        ValueError: `n` is less than 1.
    """

    def __init__(
        self,
        client: ItemServer,
        table: str,
        n: int,
        discount: float,
        *,
        priority: float | Callable[[Transition], float] = 1.0,
        items_per_call: int = 1,
    ) -> None:
        if not is_whole(n, at_least=1):
            raise ValueError(f"n is a whole number of 1 or more, not {n!r}")
        super().__init__(client, n + 1, items_per_call)
        self._table = table
        self._n = n
        self._discount = discount
        self._priority = priority
        self._recent: deque[_RecentStep] = deque(maxlen=n)
        self._is_in_episode = False

    def add_first(self, observation: Any) -> None:
        """Start an episode with its first observation.

        Raises:
            ValueError: the previous episode has not ended.
        """
        if self._is_in_episode:
            raise ValueError("add_first within an episode: the last step of one has is_last=True")
        self._is_in_episode = True
        self._writer.append(observation)

    def add(
        self,
        action: Any,
        reward: Any,
        next_observation: Any,
        discount: Any = 1.0,
        is_last: bool = False,
    ) -> None:
        """Add a step: an action and its outcome. All values are copied.

        Args:
            discount: The environment's discount; 0 if the next observation is terminal.
            is_last: True if the episode ends with this step. It ends in a terminal state, or it is cut off;
                if it is cut off, the discount is 1.

        Raises:
            ValueError: `add_first` has not started an episode.
        """
        import numpy as np

        if not self._is_in_episode:
            raise ValueError("add before add_first: an episode begins with an observation")
        step = {"action": action, "reward": reward, "discount": discount}
        arrays, structure = columns.arrays_of(step)
        step_copy = unflatten(structure, (np.array(array)[()] for array in arrays))
        self._writer.append(next_observation)
        reward_array = np.array(step_copy["reward"], float)
        discount_array = np.array(step_copy["discount"], float)
        self._recent.append(_RecentStep(step_copy["action"], reward_array, discount_array))
        self._write()
        if is_last:
            while len(self._recent) > 1:
                self._recent.popleft()
                self._write()
            self._recent.clear()
            self._is_in_episode = False
            self._writer.end_episode()
        else:
            self._writer._raise_refusal()

    def _write(self) -> None:
        """Write a transition over all recent steps."""
        import numpy as np

        (action, total_reward, total_discount), *later_steps = self._recent
        for _, reward, discount in later_steps:
            total_reward = total_reward + self._discount * total_discount * reward
            total_discount = self._discount * total_discount * discount
        first = -1 - len(self._recent)
        history: list[Any] = []
        structure = flatten(self._writer.history, history)
        reward_sum = np.float32(total_reward)
        discount_product = np.float32(total_discount)
        before, after = (unflatten(structure, (h[i] for h in history)) for i in (first, -1))
        transition = Transition(before, action, reward_sum, discount_product, after)
        priority = self._priority
        if callable(priority):
            before, after = (
                unflatten(structure, (h[i].numpy() for h in history)) for i in (first, -1)
            )
            priority = priority(Transition(before, action, reward_sum, discount_product, after))
        self._writer._make_item(self._table, priority, trajectory=transition)
