"""The batch script of a plan, as `launchpad plan` prints it. LP_GOLDEN=1 writes the compared files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from tests.slurm.programs import plan_of

GOLDEN = Path(__file__).parent / "golden"

LEARNER = ("learner", 1, lp.Resources(cpus=4, gpus=2, accelerator="A100", memory="16GiB"))
ACTORS = ("actor", 8, lp.Resources(cpus=1, gpus=0.25))


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setattr(sys, "executable", "/opt/python/bin/python")


@pytest.mark.parametrize(
    ("name", "groups", "options"),
    [
        ("plain", [("main", 1, lp.Resources())], {}),
        ("gpus", [LEARNER, ACTORS], {"nodes": 2, "partition": "gpu", "time": "12:00:00"}),
        (
            "all_settings",
            [ACTORS],
            {
                "nodes": 3,
                "partition": "gpu",
                "account": "lab",
                "qos": "high",
                "constraint": "a100&ib",
                "time": 30,
                "cpus_per_node": 16,
                "memory_per_cpu": "2GiB",
                "gpus_per_node": "a100:4",
                "sbatch_options": ["--exclusive", "--mail-type=END"],
            },
        ),
    ],
)
def test_a_plan_is_shown_as_its_batch_script(
    name: str, groups: list[tuple[str, int, lp.Resources]], options: dict[str, Any]
) -> None:
    script = plan_of(*groups, **options).shown()

    golden = GOLDEN / f"{name}.sh"
    if os.environ.get("LP_GOLDEN"):
        golden.write_text(script)
    assert script == golden.read_text()


def test_memory_that_the_cpus_do_not_bring_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(lp.DefinitionError) as caught:
        plan_of(LEARNER, memory_per_cpu="1GiB")

    assert str(caught.value) == (
        "program 'train' does not fit: its workers ask for 16 GiB on one node, and 4 CPUs of 1 GiB have"
        " 4 GiB: give cpus_per_node=17"
    )


def test_labels_are_refused() -> None:
    with pytest.raises(lp.DefinitionError, match="and the nodes of a Slurm job have none"):
        plan_of(("a", 1, lp.Resources(labels={"zone": "a"})))


def test_detaching_is_refused_with_what_to_do() -> None:
    program = lp.Program("train")
    program.add_node(lp.PyNode(print), label="main")

    with pytest.raises(lp.LaunchError, match="submit the script itself"):
        lp.launch(program, "slurm", detach=True)
