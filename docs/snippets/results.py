"""A program whose workers return results to the script."""

import random

import launchpad as lp


# part: throw
def throw(darts: int) -> float:
    """Throw darts at a square; estimate pi from the hits in the circle."""
    chance = random.Random(lp.current().replica_index)
    hits = sum(chance.random() ** 2 + chance.random() ** 2 < 1 for _ in range(darts))
    return 4 * hits / darts


# part: program
program = lp.Program("pi")
program.add_node(lp.PyNode(throw, 50_000), label="thrower", replicas=4)

estimates = lp.run(program)["thrower"]
print("estimates:", estimates)
print("pi is about", round(sum(estimates) / len(estimates), 2))
# end
