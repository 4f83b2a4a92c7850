from __future__ import annotations

import difflib
import inspect
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from examples._shared.bfloat16 import to_float, to_half
from examples._shared.data import Array
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.zero import claims, oracle, rank
from examples.systems.zero.algorithm import Sharded, Transient, part
from examples.systems.zero.program import make_program
from examples.systems.zero.rank import Trained, n_bytes
from tests.examples.conftest import assert_refused, noise


@pytest.fixture
def problem() -> Problem:
    network = Dense((64, 256, 16, 10))
    return Problem(noise(50), network, workers=1, steps=3, slice_size=8, learning_rate=1e-3)


class OneOfFour:
    """A rank without others, as if all had what it has."""

    rank, size = 1, 4

    def all_to_all(self, parts: list[list[Any]]) -> list[list[Any]]:
        return [[array.copy() for array in parts[self.rank]] for _ in parts]

    def all_gather(self, x: list[Any]) -> list[list[Any]]:
        return [[array.copy() for array in x] for _ in range(self.size)]


class Alone:
    """A model with Adam for one process, as a user of ZeRO may have had it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.steps = 0
        self.parameters = problem.first_parameters
        self.gradient = 0 * self.parameters
        self.mean = 0 * self.parameters
        self.square = 0 * self.parameters

    def forward(self, inputs: Array) -> list[Array]:
        return self.problem.network.forward(self.parameters, inputs)

    def backward(self, values: list[Array], gradient: Array) -> None:
        self.gradient += self.problem.network.backward(self.parameters, values, gradient)[1]

    def update(self) -> None:
        self.steps += 1
        self.mean = 0.9 * self.mean + 0.1 * self.gradient
        self.square = 0.999 * self.square + 0.001 * self.gradient**2
        mean = self.mean / (1 - 0.9**self.steps)
        square = self.square / (1 - 0.999**self.steps)
        self.parameters -= self.problem.learning_rate * mean / (np.sqrt(square) + 1e-8)
        self.gradient[:] = 0


def train(problem: Problem, n: int) -> Alone:
    """Train with n micro-batches in a batch; what is returned has the parameters."""
    model = Alone(problem)
    while model.steps < problem.steps:
        batch = problem.batch(model.steps)
        for rows in batch.parts(n):
            values = model.forward(rows.inputs)
            model.backward(values, problem.loss_function(values[-1], rows)[1] / n)
        model.update()
    return model


def test_training_in_one_process_becomes_zero_with_five_new_or_changed_lines() -> None:
    before, after = (inspect.getsource(each).splitlines() for each in (train, rank.train))

    lines = [line for line in difflib.ndiff(before, after) if line[0] == "+"]

    assert len(lines) == 5, lines


def test_ranks_that_round_to_bfloat16_learn_nearly_what_one_process_does_in_float64(
    problem: Problem,
) -> None:
    alone = train(problem, 2).parameters
    way = np.linalg.norm(alone - problem.first_parameters)

    expected = oracle.expected(problem, 2, True, lambda _: 4)

    assert np.linalg.norm(expected - alone) < 0.2 * way


def test_bfloat16_is_the_nearest_and_of_two_the_even_one() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    ties = 1 + np.arange(256) / 256

    for each in (values, -values, ties, 1e-30 * values, np.zeros(1)):
        assert np.array_equal(to_float(to_half(each)), oracle.rounded(each))


@pytest.mark.parametrize("stage", range(4))
def test_the_memory_that_is_counted_is_what_numpy_has_allocated(
    problem: Problem, stage: int
) -> None:
    def trained() -> Sharded:
        group: Any = OneOfFour()
        return rank.train(group, problem, 2, stage, lambda _: None)

    trained()  # what is imported and cached is there now
    tracemalloc.start()
    try:
        model = trained()
        of_numpy = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
        traces = tracemalloc.take_snapshot().filter_traces([of_numpy]).traces
        allocated = sum(trace.size for trace in traces)
    finally:
        tracemalloc.stop()

    kept = (n_bytes(model.parameters), n_bytes(model.gradients), n_bytes(model.states))
    ranks = [Trained(np.zeros(0), kept, model.wide.most, 1, 0)] * 4
    claims.check_memory(stage, ranks, problem.network.sizes)
    assert allocated == pytest.approx(sum(kept), rel=0.01)


def test_arrays_that_are_there_at_once_are_counted_together() -> None:
    transient = Transient()

    first = transient.watch(np.zeros(10))[:5]
    transient.watch(np.zeros(4))
    assert transient.most == 14
    del first
    transient.watch(np.zeros(6))

    assert transient.most == 14


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(4, 2), (2, 3)])
def test_states_of_some_ranks_become_those_of_others(
    problem: Problem, tmp_path: Path, saved_by: int, loaded_by: int
) -> None:
    whole = [np.random.default_rng(size).random((3, size)) for size in problem.network.sizes]

    def model(number: int, size: int) -> Sharded:
        group: Any = OneOfFour()
        group.rank = number
        group.size = size
        return Sharded(group, problem, 3)

    def own(number: int, size: int, layer: Array) -> Any:
        filled = np.pad(layer, [(0, 0), (0, -layer.shape[1] % size)])
        return part(filled, number, size).astype(np.float32)

    for number in range(saved_by):
        saving = model(number, saved_by)
        saving.states = [own(number, saved_by, layer) for layer in whole]
        rank.save(tmp_path, saving)

    for number in range(loaded_by):
        loading = model(number, loaded_by)
        rank.load(tmp_path, loading)
        for state, layer in zip(loading.states, whole, strict=True):
            assert np.array_equal(state, own(number, loaded_by, layer))


def test_a_checkpoint_that_lacks_a_rank_is_not_loaded(problem: Problem, tmp_path: Path) -> None:
    group: Any = OneOfFour()
    model = Sharded(group, problem, 3)
    for model.steps in (1, 2):
        for group.rank in range(4 if model.steps == 1 else 3):
            rank.save(tmp_path, model)

    rank.load(tmp_path, model)

    assert model.steps == 1


def test_a_batch_that_is_not_cut_evenly_is_refused_when_the_program_is_made(
    problem: Problem,
) -> None:
    with pytest.raises(ValueError, match="8 rows can't be cut for 3 ranks with 1 micro-batches"):
        make_program(problem, ranks=3)


def test_checks_refuse_what_is_nearly_right() -> None:
    parameters = np.zeros(2000)
    right = Trained(parameters, (2 * 264, 2 * 66, 12 * 66), 200, 2, 2)  # of 200 and 62 parameters
    begun_anew = right._replace(began_at=0)
    other_bits = right._replace(parameters=-parameters)
    some = right._replace(parameters=np.where(np.arange(2000) < 1, 1, parameters))
    claims.check_memory(2, [right] * 4, [200, 62])
    claims.check_parameters("", [right], parameters)
    claims.check_kill([right], parameters)

    assert_refused(
        lambda: claims.check_parameters("", [right, some], parameters),
        lambda: claims.check_memory(2, [right] * 3 + [right._replace(wide=262)], [200, 62]),
        lambda: claims.check_memory(2, [right._replace(kept=(528, 528, 792))] * 4, [200, 62]),
        lambda: claims.check_traffic(np.array([1.5, 1.5, 1.5, 2.0]), 4, 1),
        lambda: claims.check_kill([right, begun_anew], parameters),
        lambda: claims.check_kill([right, other_bits], parameters),
        lambda: claims.check_kill([right._replace(generation=1)], parameters),
    )


@pytest.mark.slow
def test_the_sharded_optimizers_of_torch_learn_the_same(problem: Problem) -> None:
    pytest.importorskip("torch")
    from tests.helpers import torch_zero

    program = torch_zero.make_program(problem, 2)
    ranks = lp.run(program, "local_mp", preload=torch_zero.PRELOAD, timeout_s=120)["rank"]

    alone = train(problem, 1).parameters
    for zero_redundancy, fully_sharded in ranks:
        np.testing.assert_allclose(zero_redundancy, alone, atol=1e-6)
        np.testing.assert_allclose(fully_sharded, alone, atol=1e-6)
