"""A learner in a worker of its own: it saves itself, publishes what it has saved, and survives kills."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import launchpad as lp
from examples.systems.acme.algorithm import Learner, Variables
from examples.systems.acme.stopping import until_stopped

SAVE_EVERY = 25


class Begun(NamedTuple):
    """An attempt, and the step after which it went on."""

    attempt: int
    step: int


class SavedLearner:
    """A learner that learns until the program stops.

    Actors get only variables that are saved, so no later attempt goes back behind them.

    Args:
        make_learner: Makes the learner from the experience that it learns from, and the seed.
        crashes: The steps after which the first attempts die, one for each attempt.
    """

    def __init__(
        self,
        make_learner: Callable[[Any, int], Learner],
        experience: Any,
        seed: int,
        counter: lp.Counter,
        crashes: tuple[int, ...] = (),
    ) -> None:
        self._learner = make_learner(experience, seed)
        self._counter = counter
        attempt = lp.current().attempt
        saved = lp.current().load()
        self._crash_after = dict(enumerate(crashes, start=1)).get(attempt)
        self._begun: list[Begun] = []
        if saved is not None:
            state, self._begun = saved
            self._learner.restore(state)
        self._begun.append(Begun(attempt, self._learner.get_variables().step))
        self._publish()

    def get_variables(self) -> Variables:
        return self._variables._replace(given_at=time.time())

    def run(self) -> list[Begun]:
        """Learn until the program stops. Return all attempts; this one is the last."""
        with until_stopped():
            while not lp.stop_event().is_set():
                self._step()
        return self._begun

    def _step(self) -> None:
        self._learner.step()
        step = self._learner.get_variables().step
        if step == self._crash_after:
            lp.testing.crash()
        if step % SAVE_EVERY == 0:
            self._publish()

    def _publish(self) -> None:
        lp.current().save((self._learner.save(), self._begun))
        self._variables = self._learner.get_variables()
        # The attempt before may have died after it saved and before it counted. So count the difference.
        counted = self._counter.get_counts().get("learner_steps", 0)
        self._counter.increment(learner_steps=self._variables.step - counted)
