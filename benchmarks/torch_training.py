"""A test of training with torch.distributed while ranks are killed: `python benchmarks/torch_training.py`.

A group of processes trains with DDP, then with FSDP2, over gloo. After each step rank 0 saves all state. The
script kills ranks (SIGKILL), one after the other, at random moments. Each time the others raise PeerFailed,
all ranks are started again, and go on from the last state that rank 0 saved. At the end the weights must be
those of a group without kills, bit for bit.

first step     the time from the kill until all ranks have done the first step of the next generation
PeerFailed     the time from the kill until a rank that waited in gloo has raised PeerFailed. Ranks that did
               not wait are not counted

    python benchmarks/torch_training.py --kills 20

The script exits with 1 if the weights differ. It needs torch.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.programs import FOREVER, launch, replicas

PRELOAD = ["torch", "torch._dynamo", "torch.distributed.fsdp"]
PRELOAD += ["torch.distributed.checkpoint.state_dict"]
AT_ONCE = replace(FOREVER, scope="group")
DEADLINE_S = 60.0
KINDS = ["DDP", "FSDP2"]


def train(group: lp.Collective, kind: str, steps: int, pause_s: float, notes: str) -> Any:
    """Train, starting from the state that rank 0 saved; note events in a file."""
    import torch
    from torch import nn
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_state_dict,
        set_state_dict,
    )

    # A worker that has asked for its stop event ends by itself: launchpad won't interrupt it in gloo.
    lp.stop_event()
    group.init_torch()
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    if kind == "DDP":
        # Without find_unused_parameters, DDP rebuilds its buckets after the first step of each generation.
        # Three ranks then add in another order than in that step, so the bits would depend on restarts.
        model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    else:
        from torch.distributed.fsdp import fully_shard

        for part in (model[0], model[2], model):
            fully_shard(part, mesh=torch.distributed.init_device_mesh("cpu", (group.size,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    me = lp.current()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = group.broadcast_object(me.load() if group.rank == 0 else None)
    first = 0
    if state is not None:
        first, weights, momenta = state
        set_state_dict(
            model, optimizer, model_state_dict=weights, optim_state_dict=momenta, options=options
        )
    try:
        for step in range(first, steps):
            rng = torch.Generator().manual_seed(1000 * step + group.rank)
            x = torch.randn(16, 64, generator=rng)
            y = torch.randn(16, 8, generator=rng)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            states = get_state_dict(model, optimizer, options=options)
            if group.rank == 0:
                me.save((step + 1, *states))
            if step == first:
                note(notes, "step", group)
            time.sleep(pause_s)
        states = get_state_dict(model, optimizer, options=options)
    except RuntimeError:
        try:
            group.barrier()  # raises PeerFailed if a killed rank is why gloo failed
        except lp.PeerFailed:
            note(notes, "PeerFailed", group)
            raise
        raise
    return {name: value.numpy().tobytes() for name, value in states[0].items()}


def note(notes: str, event: str, group: lp.Collective) -> None:
    """Append a line to the notes in one write, so that lines of several ranks don't mix."""
    line = f"{event} {group.generation} {group.rank} {time.monotonic()}\n"
    descriptor = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def times_of(notes: Path, event: str, generation: int) -> list[float]:
    """Return the times at which ranks have noted an event of that generation."""
    lines = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
    return [float(line[3]) for line in lines if line[:2] == [event, str(generation)]]


def measure(kind: str, ranks: int, kills: int, seed: int) -> dict[str, Any]:
    """Train a group without kills, and one with kills; compare the weights, and return the times."""
    weights: list[Any] = []
    n_killed = 0
    first_step_s = []
    peer_failed_s = []
    chance = random.Random(seed)
    steps = 20 * kills + 20
    for has_kills in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            notes = Path(folder) / "notes"
            pause_s = 0.02 if has_kills else 0.0
            rank = partial(lp.CollectiveNode, train, kind, steps, pause_s, str(notes))
            with launch(replicas("rank", ranks, rank, AT_ONCE), preload=PRELOAD) as running:
                for generation in range(1, kills + 1 if has_kills else 0):
                    wait_for(notes, generation, ranks)
                    time.sleep(chance.uniform(0, 0.2))
                    victims = [s.pid for s in running.status() if s.label == "rank" and s.pid]
                    killed_at = time.monotonic()
                    os.kill(chance.choice(victims), signal.SIGKILL)
                    n_killed += 1
                    wait_for(notes, generation + 1, ranks)
                    step_times = times_of(notes, "step", generation + 1)
                    first_step_s.append(max(step_times) - killed_at)
                    failure_times = times_of(notes, "PeerFailed", generation)
                    peer_failed_s += [t - killed_at for t in failure_times]
                weights.append(running.results("rank", 10 * DEADLINE_S)[0])
    return {
        "kind": kind,
        "ranks": ranks,
        "kills": n_killed,
        "bits_equal": weights[0] == weights[1],
        "first_step_s": sorted(first_step_s),
        "peer_failed_s": sorted(peer_failed_s),
    }


def wait_for(notes: Path, generation: int, ranks: int) -> None:
    """Wait until all ranks have done a step in that generation."""
    deadline = time.monotonic() + DEADLINE_S
    while len(times_of(notes, "step", generation)) < ranks:
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: generation {generation} does not begin")
        time.sleep(0.002)


def in_words(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    return (
        f"median {statistics.median(seconds):.3f} s, at most {max(seconds):.3f} s ({len(seconds)})"
    )


def main() -> None:
    quick = {"kills": 1, "kinds": KINDS[:1]}
    options = Parser(__doc__, quick, kills=20, ranks=3, seed=0, kinds=KINDS).parse_args()
    results = []
    for kind in options.kinds:
        result = measure(kind, options.ranks, options.kills, options.seed)
        results.append(result)
        bits = "equal bits" if result["bits_equal"] else "OTHER BITS"
        print(f"{kind:6} {options.ranks} ranks, {options.kills} kills: {bits}", flush=True)
        print(f"       first step of the next generation: {in_words(result['first_step_s'])}")
        print(f"       PeerFailed: {in_words(result['peer_failed_s'])}", flush=True)
    faults = [f"{result['kind']}: other bits" for result in results if not result["bits_equal"]]
    finish(options, {"torch_training": results}, faults)


if __name__ == "__main__":
    main()
