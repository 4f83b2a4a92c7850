"""An actor in a worker of its own."""

from collections.abc import Callable
from typing import Any

import launchpad as lp
from examples.systems.acme.algorithm import Actor, EnvironmentLoop
from examples.systems.acme.stopping import until_stopped
from examples.systems.acme.variable_client import Age, VariableClient, VariableSource

MakeActor = Callable[[VariableClient, Any, int], Actor]


class ActingLoop:
    """An actor that plays episodes until the program stops, and counts them.

    Args:
        make_actor: Makes the actor from its variables, the place for its experience, and the seed.
    """

    def __init__(
        self,
        make_actor: MakeActor,
        source: VariableSource,
        experience: Any,
        counter: lp.Counter,
        seed: int,
    ) -> None:
        self._variables = VariableClient(source)
        self._counter = counter
        self._loop = EnvironmentLoop(make_actor(self._variables, experience, seed), seed)

    def run(self) -> Age:
        """Play until the program stops, and return how old the actor's variables were."""
        with until_stopped():
            while not lp.stop_event().is_set():
                self._counter.increment(actor_steps=self._loop.run_episode(), episodes=1)
        return self._variables.age
