"""Run it: python -m examples.systems.zero --lp_launch_type=local_mp."""

import json
import tempfile
from typing import Any

import numpy as np
from absl import app, flags

import launchpad as lp
from examples._shared.checks import QUICK, check_few_lines_differ, done
from examples._shared.data import Array, Data
from examples._shared.digits import load
from examples.systems.zero import claims, oracle
from examples.systems.zero.algorithm import STAGES
from examples.systems.zero.program import Rank, make_program, resume, train

VOLUME = flags.DEFINE_string("volume", "", "On Kubernetes: where shards are saved, as JSON.")
TORCH = flags.DEFINE_bool("torch", False, "Compare torch's own; as processes.")
FEW_LINES = "training in one process becomes ZeRO"
RANKS = 4
FEWER = 2


def main(_: list[str]) -> None:
    """Train in one process, and with ZeRO or torch's counterparts of it, and compare."""
    digits = load()[0]
    steps = 4 if QUICK.value else 40
    alone = oracle.train(digits, steps).layers
    if TORCH.value:
        from examples.systems.zero import torch_ranks

        torch_ranks.compare(digits, steps, np.concatenate(alone))
    else:
        check_few_lines_differ(FEW_LINES, 5, oracle.train, train)
        undisturbed = compare_stages(digits, steps, alone)
        with tempfile.TemporaryDirectory() as folder:
            compare_resumed(digits, steps, undisturbed, folder)
    done()


def compare_stages(digits: Data, steps: int, alone: list[Array]) -> Array:
    """Check each stage. Return the weights that the last one has reached."""
    sizes = [len(layer) for layer in alone]
    reached = alone
    with lp.launch(make_program(RANKS, Rank, digits)) as running:
        ranks = lp.broadcast(running.clients("rank"))
        counted = [bytes_of(running)]
        for stage in range(len(STAGES)):
            memory = ranks.train(stage, steps)
            counted.append(bytes_of(running))
            reached = ranks.weights()  # only the last stage sends anything for this
            claim = f"{RANKS} ranks at stage {stage} learn what Adam does in one process"
            claims.check_weights(claim, reached, np.concatenate(alone))
            claims.check_memory(stage, memory, sizes)
    claims.check_traffic(np.diff(counted) / (8 * sum(sizes) * RANKS * steps), RANKS)
    return reached[0]


def bytes_of(running: lp.Running) -> int:
    """Return how many bytes have gone from rank to rank, in arguments and results of calls."""
    edges = running.edges(timeout_s=60).total(caller="rank", server="rank")
    if not edges.is_exact:
        raise TimeoutError("a rank has not said within a minute what it has counted")
    return edges.bytes_sent + edges.bytes_received


def compare_resumed(digits: Data, steps: int, undisturbed: Array, folder: str) -> None:
    """Check a run with a kill. Then check that fewer ranks can go on from the shards that it has saved."""
    place: dict[str, Any] = {"state": folder}
    if VOLUME.value:
        place = {"state": "zero", "state_volume": json.loads(VOLUME.value)}
    ranks = lp.run(make_program(RANKS, resume, digits, steps, 1), **place)["rank"]
    claims.check_kill(ranks, undisturbed)
    ranks = lp.run(make_program(FEWER, resume, digits, steps), **place)["rank"]
    claims.check_fewer(ranks, RANKS, undisturbed)


if __name__ == "__main__":
    app.run(main)
