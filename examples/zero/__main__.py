"""Run it: python -m examples.zero --lp_launch_type=local_mp."""

import json
import tempfile
from typing import Any

import numpy as np
from absl import app, flags

import launchpad as lp
from examples._shared.checks import QUICK, check, done
from examples._shared.digits import Array, Digits, load
from examples.zero import claims, oracle
from examples.zero.algorithm import STAGES
from examples.zero.program import SAVED_AT, Rank, make_program, resume, train

VOLUME = flags.DEFINE_string("volume", "", "On Kubernetes: where shards are saved, as JSON.")
TORCH = flags.DEFINE_bool("torch", False, "Compare with torch's own, too; on local_mp.")
RANKS, FEWER = 4, 2


def main(_: list[str]) -> None:
    """Train at all stages, then with a kill, then with fewer ranks, and compare."""
    digits, steps = load()[0], 4 if QUICK.value else 40
    alone = oracle.train(digits, steps).layers
    claims.check_few_lines_differ(oracle.train, train)
    undisturbed = compare_stages(digits, steps, alone)
    with tempfile.TemporaryDirectory() as folder:
        kill_one(digits, steps, undisturbed, state(folder))
        go_on_with_fewer(digits, steps, undisturbed, state(folder))
    if TORCH.value:
        from examples.zero import torch_ranks

        torch_ranks.compare(digits, alone)
    done()


def compare_stages(digits: Digits, steps: int, alone: list[Array]) -> Array:
    """Check each stage; returns what the last one has come to."""
    sizes, sent, reached = [len(layer) for layer in alone], {}, []
    with lp.launch(make_program(RANKS, Rank, digits)) as running:
        ranks = lp.broadcast(running.clients("rank"))
        for stage in range(len(STAGES)):
            before = bytes_of(running)
            measured = ranks.train(stage, steps)
            sent[stage] = (bytes_of(running) - before) / (8 * sum(sizes) * RANKS * steps)
            reached = ranks.weights()
            claim = f"{RANKS} ranks at stage {stage} learn what Adam does in one process"
            claims.check_weights(claim, reached, np.concatenate(alone))
            claims.check_kept(stage, measured, sizes)
    claims.check_traffic(sent)
    return reached[0]


def bytes_of(running: lp.Running) -> int:
    """Return what has gone from rank to rank: of each call its arguments and its result."""
    edges = running.edges().total(caller="rank", server="rank")
    return edges.bytes_sent + edges.bytes_received


def kill_one(digits: Digits, steps: int, undisturbed: Array, place: dict[str, Any]) -> None:
    """Check that a rank may die."""
    ranks = lp.run(make_program(RANKS, resume, digits, steps, 3, 1), **place)["rank"]
    check(
        all(rank.weights.tobytes() == undisturbed.tobytes() for rank in ranks),
        "a rank that is killed changes no bit",
        f"generation {ranks[0].generation} went on from step {ranks[0].began_at}",
    )
    check(ranks[0][1:] == (2, SAVED_AT), "it was killed", f"in generation {ranks[0].generation}")


def go_on_with_fewer(digits: Digits, steps: int, undisturbed: Array, place: dict[str, Any]) -> None:
    """Check that shards of a launch can be loaded by another number of ranks."""
    ranks = lp.run(make_program(FEWER, resume, digits, steps, 3, -1), **place)["rank"]
    claim = f"{FEWER} ranks go on from what {RANKS} have saved, and learn the same"
    claims.check_weights(claim, [rank.weights for rank in ranks], undisturbed)


def state(folder: str) -> dict[str, Any]:
    """Return the options of a launch whose shards the next one finds."""
    if VOLUME.value:
        return {"state": "zero", "state_volume": json.loads(VOLUME.value)}
    return {"state": folder}


if __name__ == "__main__":
    app.run(main)
