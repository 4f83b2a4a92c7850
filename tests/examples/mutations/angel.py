"""Wrong parameter servers for sparse models."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "a pull waits for workers that are more than s clocks behind",
        "shard.py",
        "self._state.wait(clock, self._staleness)",
        "self._state.wait(clock, self._staleness + 1)",
    ),
    Mutation(
        "workers in SSP may use their slack",
        "shard.py",
        "self._state.wait(clock, self._staleness)",
        "self._state.wait(clock, 0)",
    ),
    Mutation(
        "the next pull is under way during a gradient",
        "worker.py",
        "            coming = ask(clock + 1)\n",
        "            class Late:\n                def result(self, clock=clock + 1):\n"
        "                    return ask(clock).result()\n            coming = Late()\n",
    ),
    Mutation(
        "the workers of a group add up their gradients",
        "worker.py",
        "keys, total = add([*parts,",
        "keys, total = add([*parts[-1:] * len(parts),",
    ),
    Mutation(
        "in BSP a clock's gradients are applied when all are there",
        "shard.py",
        "if self._staleness > 0 or len(weights.waiting)",
        "if self._staleness >= 0 or len(weights.waiting)",
    ),
    Mutation(
        "a shard that is killed counts each push once",
        "shard.py",
        "            if is_new:",
        "            if is_new or lp.current().attempt > 1:",
    ),
    Mutation(
        "a psFunc is computed in the shards, and not where it is called",
        "worker.py",
        "join(every.compute(of_part))",
        "join([of_part(part) for part in every.compute(lambda w: w)])",
    ),
    Mutation(
        "the weights follow the mean of the workers' gradients",
        "program.py",
        "rate = problem.learning_rate / problem.workers",
        "rate = problem.learning_rate / problem.workers * group_size",
    ),
)
