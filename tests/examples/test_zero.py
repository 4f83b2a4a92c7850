from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples._shared import networks
from examples._shared.checks import check_few_lines_differ
from examples._shared.data import Array
from examples.systems.zero import checkpoint, claims
from examples.systems.zero.algorithm import STAGES
from examples.systems.zero.memory import Memory, memory_of
from examples.systems.zero.model import WIDTHS, backward, first_layers, forward
from examples.systems.zero.oracle import Alone
from examples.systems.zero.parts import padded, part, resharded
from examples.systems.zero.program import SAVED_AT, Resumed
from examples.systems.zero.transient import Transient
from tests.examples.conftest import assert_refused, noise

SIZES = [(inputs + 1) * outputs for inputs, outputs in pairwise(WIDTHS)]


class OneOfFour:
    """A rank without others, as if all had what it has."""

    rank, size = 1, 4

    def all_reduce(self, x: list[Array], op: str) -> list[Array]:
        return [array.copy() for array in x]

    def reduce_scatter(self, x: list[Array], op: str) -> list[Array]:
        return [part(array, self.rank, self.size).copy() for array in x]

    def all_gather(self, x: list[Array]) -> list[list[Array]]:
        return [[array.copy() for array in x] for _ in range(self.size)]


def train(store: Any, steps: int = 2) -> None:
    batch = noise(8)
    for _ in range(steps):
        values = forward(store, batch.inputs)
        backward(store, values, networks.cross_entropy(values[-1], batch)[1])
        store.update()


def test_layers_one_after_the_other_have_the_gradient_of_the_whole_network() -> None:
    store, batch = Alone(first_layers()), noise(8)
    whole = networks.gradient(WIDTHS, networks.first_parameters(WIDTHS), batch)

    values = forward(store, batch.inputs)
    backward(store, values, networks.cross_entropy(values[-1], batch)[1])

    assert np.array_equal(np.concatenate(store.gradients), whole)


@pytest.mark.parametrize("stage", range(4))
def test_what_is_counted_is_what_numpy_has_allocated(stage: int) -> None:
    train(STAGES[stage](OneOfFour(), first_layers()))  # what is imported and cached is there now
    tracemalloc.start()
    try:
        store = STAGES[stage](OneOfFour(), first_layers())
        train(store)
        of_numpy = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
        traces = tracemalloc.take_snapshot().filter_traces([of_numpy]).traces
        allocated = sum(trace.size for trace in traces) / 8
    finally:
        tracemalloc.stop()

    claims.check_memory(stage, [memory_of(store)] * 4, SIZES)
    assert allocated == pytest.approx(sum(memory_of(store)[:3]), rel=0.01)


def test_arrays_that_are_there_at_once_are_counted_together() -> None:
    transient = Transient()

    first = transient.watch(np.zeros(10))[:5]
    transient.watch(np.zeros(4))
    assert transient.most == 14
    del first
    transient.watch(np.zeros(6))

    assert transient.most == 14


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(4, 2), (2, 3)])
def test_shards_of_some_ranks_become_those_of_others(saved_by: int, loaded_by: int) -> None:
    layers = [np.random.default_rng(size).random((3, size)) for size in (7, 12, 1)]

    def shard(rank: int, n: int) -> Array:
        return np.array([np.hstack([part(padded(v, n), rank, n) for v in row]) for row in rows])

    rows = list(zip(*layers, strict=True))
    shards = [shard(rank, saved_by) for rank in range(saved_by)]

    for rank in range(loaded_by):
        loaded = resharded(shards, [7, 12, 1], rank, loaded_by)
        assert np.array_equal(loaded, shard(rank, loaded_by))


def test_a_checkpoint_that_lacks_a_rank_is_not_loaded(tmp_path: Path) -> None:
    class Ranks(OneOfFour):
        rank = 0

    saving, loading = (STAGES[3](group, first_layers()) for group in (Ranks(), OneOfFour()))
    train(saving, steps=2)
    for Ranks.rank in range(3):
        checkpoint.save(tmp_path, saving)

    checkpoint.load(tmp_path, loading, 2)
    assert loading.steps == 0
    Ranks.rank = 3
    checkpoint.save(tmp_path, saving)
    checkpoint.load(tmp_path, loading, 2)

    assert loading.steps == 2
    assert np.array_equal(loading.adam.square, saving.adam.square)


def test_checks_refuse_what_is_nearly_right() -> None:
    weights, alone = np.zeros(3), np.zeros(3)
    right = Memory(264, 66, 132, 0, 200)  # of layers with 200 and 62 elements
    good, begun_anew = Resumed(weights, 2, SAVED_AT), Resumed(weights, 2, 0)
    other_bits = good._replace(weights=-weights)
    claims.check_memory(2, [right] * 4, [200, 62])

    assert_refused(
        lambda: claims.check_weights("", [weights, np.full(3, np.nan)], alone),
        lambda: claims.check_weights("", [weights, weights + 2e-12], alone),
        lambda: claims.check_memory(2, [right] * 3 + [right._replace(moments=133)], [200, 62]),
        lambda: claims.check_memory(2, [right._replace(unscattered=264)] * 4, [200, 62]),
        lambda: claims.check_traffic(np.array([1.5, 1.5, 1.5, 2.0]), 4),
        lambda: claims.check_kill([good, begun_anew], alone),
        lambda: claims.check_kill([good, other_bits], alone),
        lambda: claims.check_fewer([begun_anew._replace(generation=1)], 4, alone),
        lambda: check_few_lines_differ("", 5, noise, train),
    )
