"""torch.distributed and jax.distributed in a CollectiveNode."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import launchpad as lp

pytest.importorskip("torch")
from tests.docs import pages
from tests.helpers import scripts, torch_nodes
from tests.helpers.collective_nodes import program_of

HAS_JAX = (
    importlib.util.find_spec("jax") is not None
)  # which must not be imported where processes fork

PRELOAD = ["tests.helpers.torch_nodes", "torch._dynamo"]
RUN = [sys.executable, "-m", "launchpad", "run"]
AT_ONCE = lp.RestartPolicy(scope="group", backoff=0)


def run(program: lp.Program, launch_type: str = "test_mp") -> list[Any]:
    preload = PRELOAD if launch_type == "test_mp" else []
    return list(lp.run(program, launch_type, preload=preload)["rank"])


def printed_by(command: list[str], cwd: Path = pages.ROOT) -> str:
    """What it prints; its exit code is 0."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=scripts.environment(),
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def are_equal(a: torch_nodes.Weights, b: torch_nodes.Weights) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_operations_by_gloo_have_the_results_of_numpy(launch_type: str) -> None:
    differs = run(program_of(3, torch_nodes.compute_all, backend="gloo"), launch_type)

    assert differs == [[], [], []]


def test_an_operation_that_ends_just_after_a_wait_for_it_has_timed_out_has_succeeded() -> None:
    from launchpad.collectives.torch_operations import TorchOperations

    operations, generation = object.__new__(TorchOperations), Mock(error=None)
    operations._generation = generation
    work = Mock()
    work.wait.side_effect = [RuntimeError("timed out"), None]
    work.is_completed.return_value = True

    operations._wait(work, "all_reduce", 60)

    assert work.wait.call_count == 2
    generation.check.assert_not_called()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launch_type", "is_killed"), [("test_mt", False), ("test_mp", False), ("test_mp", True)]
)
def test_ranks_that_wait_in_gloo_learn_that_a_third_one_has_died(
    launch_type: str, is_killed: bool
) -> None:
    program = program_of(3, torch_nodes.wait_for_each_other, is_killed, backend="gloo")

    with pytest.raises(lp.ProgramFailed) as failed:
        run(program, launch_type)

    assert failed.value.worker == "rank-0"
    others = {each.worker: each for each in failed.value.consequences}
    for name in ("rank-1", "rank-2"):
        assert "PeerFailed" in others[name].error_type
        assert "rank-0 (rank 0 of 3 in 'rank', generation 1)" in others[name].cause


@pytest.mark.slow
def test_a_script_ends_well_after_threads_were_freed_from_gloo(tmp_path: Path) -> None:
    command = scripts.write(
        tmp_path,
        "import launchpad as lp\n"
        "from tests.helpers import torch_nodes\n"
        "program = lp.Program('threads')\n"
        "with program.group('rank', restart=lp.RestartPolicy(scope='group', backoff=0)):\n"
        "    for _ in range(3):\n"
        "        node = lp.CollectiveNode(torch_nodes.fail_once, backend='gloo')\n"
        "        program.add_node(node)\n"
        "print(lp.run(program, 'local_mt')['rank'])\n",
    )

    assert "[6, 6, 6]" in printed_by(command)


@pytest.mark.slow
def test_an_error_of_the_default_group_that_escapes_becomes_peer_failed() -> None:
    with pytest.raises(lp.ProgramFailed) as failed:
        run(program_of(3, torch_nodes.wait_in_the_default_group))

    assert failed.value.worker == "rank-0"
    others = failed.value.consequences
    assert {each.worker for each in others} == {"rank-1", "rank-2"}
    assert {each.error_type for each in others} == {"launchpad.errors.PeerFailed"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the time of a thread is not known there")
@pytest.mark.parametrize("backend", ["courier", "gloo"])
def test_a_rank_that_gloo_does_not_free_leaves_its_process(backend: str) -> None:
    each_by_itself = lp.RestartPolicy(backoff=0)  # the supervisor stops nobody
    program = program_of(
        3, torch_nodes.be_stuck_once, backend, backend=backend, restart=each_by_itself
    )

    results = run(program)

    assert results == [[2, 2, 3]] * 3


@pytest.mark.slow
def test_a_script_for_torchrun_runs_as_it_is_and_again_in_the_same_generation() -> None:
    results = run(program_of(2, torch_nodes.main_twice, 5))

    (first, again), (others_first, _) = results
    assert are_equal(first, again)
    assert are_equal(first, others_first)


@pytest.mark.slow
def test_ranks_that_wait_in_gloo_start_again_if_their_script_has_imported_torch_itself(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for step in range(10):\n"
        "    if (step, dist.get_rank(), os.environ['TORCHELASTIC_RESTART_COUNT']) == (5, 1, '0'):\n"
        "        os.kill(os.getpid(), 9)\n"
        "    dist.all_reduce(torch.ones(1))\n"
        "print('done')\n"
    )

    printed = printed_by([*RUN, "--ranks=2", "train.py"], cwd=tmp_path)

    assert "group 'rank' is started again" in printed
    assert printed.count("| done") == 2


@pytest.mark.slow
def test_the_script_for_torchrun_of_the_page_trains_in_four_ranks(tmp_path: Path) -> None:
    script = str(pages.ROOT / "docs/snippets/on_torch/for_torchrun.py")
    preload = "--preload=torch,torch._dynamo"

    printed = printed_by([*RUN, "--ranks=4", preload, script, "--steps=100"], cwd=tmp_path)

    assert [line.partition("| ")[2] for line in printed.splitlines() if "| step" in line] == [
        "step 50: [3.0, 1.0]",
        "step 100: [3.0, 1.0]",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("is_sharded", [False, True], ids=["DDP", "FSDP2"])
def test_training_ends_with_the_same_bits_if_ranks_are_killed(is_sharded: bool) -> None:
    n_steps, deaths = 12, ((4, 1), (9, 0))
    undisturbed = program_of(2, torch_nodes.train, n_steps, is_sharded=is_sharded)
    disturbed = program_of(
        2, torch_nodes.train, n_steps, is_sharded=is_sharded, deaths=deaths, restart=AT_ONCE
    )

    weights = run(undisturbed)[0]

    assert are_equal(run(disturbed)[0], weights)
    alone = torch_nodes.train_alone(n_steps, 2)
    assert all(np.allclose(weights[name], alone[name], atol=1e-6) for name in alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    "train", [torch_nodes.train_on, torch_nodes.train_on_after_one_died_connecting]
)
def test_an_elastic_group_makes_its_default_group_anew_in_the_same_process(train: Any) -> None:
    policy = lp.RestartPolicy(min_replicas=2, backoff=0)
    program = program_of(3, train, restart=policy)

    results = run(program)

    assert results == [[1, True], [1, True], [2, True]]


@pytest.mark.slow
def test_an_elastic_rank_goes_on_when_another_one_dies_while_gloo_connects_them() -> None:
    policy = lp.RestartPolicy(min_replicas=1, backoff=0)
    program = program_of(
        3, torch_nodes.go_on_after_one_died_connecting, backend="gloo", restart=policy
    )

    results = run(program)

    assert results == [[1, 3], [2, 3], [2, 3]]


def test_threads_are_told_why_they_have_no_default_group() -> None:
    program = program_of(2, torch_nodes.init_on_a_thread, restart=AT_ONCE)

    with pytest.raises(lp.ProgramFailed, match="is a thread, and torch has one default group"):
        run(program, "test_mt")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="jax is not installed")
def test_jax_computes_over_all_ranks_and_begins_anew_when_one_has_died() -> None:
    program = program_of(2, torch_nodes.compute_with_jax, restart=AT_ONCE)

    assert run(program) == [[2, 2, [1.0, 2.0]]] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("docs/snippets/on_torch/ddp.py", "\n[[3.0, 1.0], [3.0, 1.0]]\n"),
        ("docs/snippets/on_torch/script.py", "[2.0, 2.0]\n"),
        (
            "docs/snippets/on_torch/train_model.py --lp_launch_type=local_mp",
            "\naccuracy: [0.9",
        ),
        pytest.param(
            "docs/snippets/on_torch/with_jax.py",
            "[1.0, 1.0]\n",
            marks=pytest.mark.skipif(not HAS_JAX, reason="jax is not installed"),
        ),
        ("benchmarks/torch_training.py --quick", "1 kills: equal bits"),
    ],
)
def test_what_the_page_shows_runs(script: str, printed: str) -> None:
    assert printed in printed_by([sys.executable, *script.split()])
