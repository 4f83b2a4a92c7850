"""Programs written for dm-launchpad, with the imports that they have, as `python -m`.

Its own examples, written anew from their descriptions; and small ones in the manner of those that people use.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.carry_over.program_output import output_of
from tests.faults import backends

EXAMPLES = {
    "hello_world": ["Hello World!!!"],
    "consumer_producers": ["Results: [0, 1]"],
    "batching": [f"client {i} got {i * i}" for i in range(5)],
    "program_wait": ["the first has ended", "all have ended", "the program has ended"],
}


@backends.everywhere_by_script
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_it_is(name: str, launch_type: str) -> None:
    output = output_of(name, f"--lp_launch_type={launch_type}")

    for line in EXAMPLES[name]:
        assert line in output


def test_oats_actors_and_learners_have_their_gpus_and_their_log_lines_arrive() -> None:
    output = output_of("oat_like")

    assert "INFO:root:rank 0 of 2 has GPU 2" in output
    assert "INFO:root:step 1: [['prompt 1 by 0'], ['prompt 1 by 1']]" in output
    assert "INFO:root:done at versions [2, 2]" in output


def test_iris_coordinates_workers_and_ends_at_once(tmp_path: Path) -> None:
    flags = ["--lp_launch_type=local_mp", "--lp_termination_notice_secs=0"]

    output = output_of("iris_like", f"--logdir={tmp_path}", *flags)

    lines = [line.split("| ")[1] for line in output.splitlines() if "| iteration" in line]
    assert lines == [
        "iteration 19: -0.003",
        "iteration 39: -0.000",
        "iteration 59: -0.000",
    ]
    assert "Thread 0x" not in output  # no stacks of workers that were not to have any time
    assert -1e-4 < float((tmp_path / "iteration_0059").read_text()) <= 0


def test_mavas_builder_launches_and_it_is_said_that_its_trainer_gets_no_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    output = output_of("mava_like", "--lp_launch_type=local_mp", LP_FAKE_GPUS="2")

    assert "trained to {'weights': " in output
    assert "no worker is given a GPU, and this host has GPUs" in output
