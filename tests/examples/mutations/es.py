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
        "each seed is played by one evaluator, and all seeds are played",
        "workers.py",
        "bounds = [len(seeds) * part // parts for part in range(parts + 1)]",
        "bounds = [part * (len(seeds) // parts - 1) for part in range(parts)] + [len(seeds)]",
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
