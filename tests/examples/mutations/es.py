"""Wrong evolution strategies."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "a perturbation is tried backwards, too",
        "workers.py",
        "play(parameters - offset, seed)",
        "play(parameters + offset, seed)",
    ),
    Mutation(
        "returns are replaced by their ranks",
        "evolution.py",
        "ranks = centred_ranks(np.array(evaluate(parameters, seeds)))",
        "ranks = np.array(evaluate(parameters, seeds)) / 500",
    ),
    Mutation(
        "an evaluator plays its own part of the seeds",
        "workers.py",
        "[seeds[start:stop] for start, stop in pairwise(bounds)]",
        "[seeds[: stop - start] for start, stop in pairwise(bounds)]",
    ),
    Mutation(
        "each iteration tries other directions",
        "evolution.py",
        "range(iteration * strategy.pairs, (iteration + 1) * strategy.pairs)",
        "range(strategy.pairs)",
    ),
    Mutation(
        "the update is divided by the number of pairs",
        "evolution.py",
        "total / (2 * strategy.pairs * strategy.sigma)",
        "total / (2 * strategy.sigma)",
    ),
)
