"""An actor in a worker of its own."""

from collections.abc import Callable
from typing import Any

import launchpad as lp
from examples.systems.acme.algorithm import Actor, EnvironmentLoop
from examples.systems.acme.stopping import until_stopped
from examples.systems.acme.variable_client import Age, VariableClient, VariableSource

MakeActor = Callable[[VariableClient, Any, int], Actor]


class ActingLoop:
    """Plays episodes until the program stops, and counts them.

    Args:
        make_actor: Of its variables, where its experience goes, and the seed.
    """

    def __init__(
        self,
        make_actor: MakeActor,
        source: VariableSource,
        experience: Any,
        counter: lp.Counter,
        seed: int,
    ) -> None:
        self._variables, self._counter = VariableClient(source), counter
        self._loop = EnvironmentLoop(make_actor(self._variables, experience, seed), seed)

    def run(self) -> Age:
        """Return how old the variables were that it acted by."""
        with until_stopped():
            while not lp.stop_event().is_set():
                self._counter.increment(actor_steps=self._loop.run_episode(), episodes=1)
        return self._variables.age
