from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from examples._shared import networks
from examples._shared.digits import Array, Digits
from examples._shared.problem import Problem
from examples.big_dl import claims, quantized
from examples.big_dl.algorithm import (
    FORWARD_BACKWARD,
    SYNCHRONIZATION,
    Block,
    Jobs,
    Task,
    dispatches,
)
from examples.big_dl.block_store import BlockStore
from examples.big_dl.on_digits import METHODS
from examples.big_dl.oracle import train_alone
from examples.big_dl.program import Result, Trained

CLAIMS = """
each of 2 executors gets 2(N-1)/N = 1.0000 of the parameters in an iteration
each of 4 executors gets 2(N-1)/N = 1.5000 of the parameters in an iteration
1, 2, 4 executors learn what one process learns from whole batches, to 1e-12
1, 2, 4 executors learn the same bits
groups of k iterations take N/k calls of the driver an iteration, and single jobs 2N
groups of iterations learn the same bits
executors that are killed in forward-backward and synchronization change no bit
only tasks of killed executors are run again, from where these had saved
in int8 at most 0.5% of 359 held-out digits are lost
""".strip().splitlines()


def noise(n: int) -> Digits:
    rng = np.random.default_rng(n)
    return Digits(rng.random((n, 64)), rng.integers(10, size=n))


@pytest.mark.slow
def test_big_dl_holds_what_the_paper_claims_though_an_executor_is_killed_in_each_job(
    run_system, launch_type
) -> None:
    printed = run_system("big_dl", launch_type)

    for claim in CLAIMS:
        assert f"ok    {claim}: " in printed


@pytest.mark.parametrize("executors", [1, 2, 4])
def test_executors_that_are_lost_at_random_change_no_bit(executors: int) -> None:
    problem = Problem(noise(60), steps=24, slice_size=3)
    undisturbed, n_tasks = train_here(problem, 1)

    disturbed, n_tasks_disturbed = train_here(problem, executors, loses=True)

    assert n_tasks_disturbed > n_tasks * executors
    assert np.array_equal(disturbed, undisturbed)
    assert np.abs(disturbed - train_alone(problem, momentum=0.9)).max() < 1e-14


def train_here(problem: Problem, executors: int, loses: bool = False) -> tuple[Array, int]:
    """Train in groups of 4 iterations; return the parameters, and how many tasks were run."""
    jobs, n_tasks, rng = Jobs(problem, 0.9, executors), 0, np.random.default_rng(0)
    indices, saved, stores = range(executors), list[list[Any]](), dict[int, BlockStore]()

    def get(blocks: Sequence[Block]) -> list[Array]:
        return [stores[block.task.executor].get(block) for block in blocks]

    def run(task: Task) -> list[Array]:
        nonlocal n_tasks
        n_tasks += 1
        return jobs.run(task, get)

    def start(i: int) -> None:
        stores[i] = BlockStore(run)
        for task, blocks in saved[i]:
            stores[i].put(task, blocks)

    def lose() -> None:
        if loses and rng.random() < 0.5:
            start(int(rng.integers(executors)))

    for i, part in enumerate(np.array_split(problem.first_parameters, executors)):
        saved.append([(Task(SYNCHRONIZATION, -1, i), [part, np.zeros_like(part)])])
        start(i)
    for group in dispatches(problem.steps, 4):
        for store in stores.values():
            store.drop(group[0][1] - 1)
        for job, iteration in group:
            for i in indices:
                stores[i].make(Task(job, iteration, i))
                lose()
        last = [Task(SYNCHRONIZATION, group[-1][1], i) for i in indices]
        for i, task in enumerate(last):
            saved[i] = [saved[i][-1], (task, stores[i].make(task))]
            lose()
    return np.concatenate(get([Block(task, 0) for task in last])), n_tasks


def test_jobs_are_dispatched_each_by_itself_or_those_of_some_iterations_together() -> None:
    one, other = FORWARD_BACKWARD, SYNCHRONIZATION

    assert dispatches(2, None) == [[(one, 0)], [(other, 0)], [(one, 1)], [(other, 1)]]
    assert dispatches(3, 2) == [
        [(one, 0), (other, 0), (one, 1), (other, 1)],
        [(one, 2), (other, 2)],
    ]


def test_a_network_in_int8_has_weights_within_half_of_their_rows_scale_and_reads_the_same() -> None:
    widths, images = (64, 20, 10), noise(200)
    parameters = networks.first_parameters(widths)
    parameters[:64] = 0

    layers = quantized.quantize(widths, parameters)

    for layer, matrix in zip(layers, networks.matrices(widths, parameters), strict=True):
        off = layer.weights * layer.scales[:, None].astype(float) - matrix[:-1].T
        assert (np.abs(off) <= layer.scales[:, None] * 0.501).all()
        assert np.abs(layer.weights).max() == 127
    read = networks.forward(widths, parameters, images.images)[-1].argmax(axis=1)
    assert quantized.accuracy(layers, Digits(images.images, read)) > 0.95


@pytest.mark.slow
def test_the_common_problem_is_learned_as_by_one_process_though_two_executors_are_killed(
    monkeypatch,
) -> None:
    monkeypatch.setenv("LP_LAUNCH_TYPE", "test_mp")
    problem = Problem(workers=2, steps=20)

    learned = METHODS["big_dl"](problem, True)

    assert np.abs(learned.parameters - problem.train_alone()).max() <= 1e-12


@pytest.mark.slow
def test_a_run_that_was_to_be_disturbed_and_was_not_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("LP_LAUNCH_TYPE", "test_mt")
    monkeypatch.setattr(lp.testing, "crash", lambda: None)

    with pytest.raises(RuntimeError, match=r"to be killed, and all ended in \[1, 1\]"):
        METHODS["big_dl"](Problem(noise(99), workers=2, steps=8), True)


def test_checks_refuse_what_is_nearly_right() -> None:
    def result(parameters: list[float], made: int = 16, attempt: int = 1) -> Result:
        trained = Trained(np.array(parameters), [16, made], [1, attempt], 0.1)
        call = lp.edges.EdgeStats(
            "driver-0", "executor-0", "execute", 2, 2, 0, 0, 0, 100, 10, 0, 0, (), is_exact=True
        )
        return Result(trained, lp.edges.Edges((call,)))

    right, off = result([1.0, 2.0]), result([1.0, 2.0 + 1e-15])
    deadly = [Task(FORWARD_BACKWARD, 5, executor=1)]
    # An image is one pixel; a weight of another pixel makes the scale so large that all others are 0.
    shown = Digits(np.eye(10, 64, 1), np.arange(10))
    parameters = np.vstack([np.full(10, 1e6), np.eye(64, 10)]).ravel()
    claims.check_kills(result([1.0, 2.0], 8, 2).trained, right.trained, deadly, 4)

    for check in (
        lambda: claims.check_parameters({1: right}, np.array([1.0, 2.0 + 2e-12])),
        lambda: claims.check_parameters({1: right, 2: off}, np.array([1.0, 2.0])),
        lambda: claims.check_bytes(right.edges, 2, 100),
        lambda: claims.check_dispatches({None: right, 4: right}, 4),
        lambda: claims.check_kills(result([1.0, 2.0], 8, 1).trained, right.trained, deadly, 4),
        lambda: claims.check_kills(result([1.0, 2.0], 9, 2).trained, right.trained, deadly, 4),
        lambda: claims.check_kills(off.trained, right.trained, [], 4),
        lambda: claims.check_int8((64, 10), parameters, shown),
    ):
        with pytest.raises(ArithmeticError, match="it should hold that"):
            check()
