"""The settings of a job: wrong ones fail at the line that made them."""

from __future__ import annotations

from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.backends.slurm.settings import SlurmSettings


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("nodes", 0, "a whole number of 1 or more"),
        ("nodes", "3", "a whole number of 1 or more"),
        ("nodes", True, "a whole number of 1 or more"),
        ("cpus_per_node", 1.5, "a whole number of 1 or more"),
        ("time", "soon", "minutes, or text such as"),
        ("time", 0, "minutes, or text such as"),
        ("partition", "a b", "a name without spaces"),
        ("account", "x\n#SBATCH --uid=0", "a name without spaces"),
        ("memory_per_node", "much", "bytes, or text with a unit"),
        ("memory_per_cpu", -1, "bytes, or text with a unit"),
        ("gpus_per_node", "a100:many", "a whole number, or text such as"),
        ("gpus_per_node", -1, "a whole number, or text such as"),
        ("sbatch_options", "--exclusive", "a list of options"),
        ("sbatch_options", ["exclusive"], "a list of options"),
        ("sbatch_options", ["--a\n#SBATCH --b"], "a list of options"),
        ("requeue", 1, "True or False"),
    ],
)
def test_a_wrong_setting_is_named_with_what_was_expected(
    name: str, value: Any, expected: str
) -> None:
    with pytest.raises(lp.DefinitionError) as caught:
        SlurmSettings(**{name: value})

    assert f"SlurmSettings({name}={value!r}): expected {expected}" in str(caught.value)


def test_memory_is_for_a_node_or_for_a_cpu_but_not_for_both() -> None:
    with pytest.raises(lp.DefinitionError, match="expected only one of them"):
        SlurmSettings(memory_per_node="4GiB", memory_per_cpu="1GiB")


@pytest.mark.parametrize("time", [1, "30", "10:00", "12:00:00", "2-00", "2-12:00:00"])
def test_times_are_as_slurm_takes_them(time: int | str) -> None:
    assert SlurmSettings(time=time).time == time


def test_an_unknown_setting_is_refused_by_the_launch() -> None:
    program = lp.Program("train")
    program.add_node(lp.PyNode(print), label="main")

    with pytest.raises(lp.DefinitionError, match="'slurm' does not take 'node'"):
        lp.plan(program, "slurm", node=3)
