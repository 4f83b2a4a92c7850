"""Resources: the specification, where it may be given, and what a plan shows of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import launchpad as lp
from launchpad.courier import formatting
from tests.helpers.programs import single


def program_with(**resources: Any) -> lp.Program:
    """One group, `learner`, with one worker."""
    return single(lp.PyNode(print), "learner", resources=lp.Resources(**resources))


# --- the specification ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("gpus", -1, "whole number"),
        ("gpus", 1.5, "whole number"),
        ("gpus", 0.00001, "below 1"),
        ("gpus", "two", "below 1"),
        ("gpus", True, "below 1"),
        ("cpus", 0, "more than 0"),
        ("cpus", float("inf"), "more than 0"),
        ("cpus", "4", "more than 0"),
        ("memory", 0, "'4GiB'"),
        ("memory", "much", "'4GiB'"),
        ("memory", 1.5, "'4GiB'"),
        ("memory", True, "'4GiB'"),
        ("accelerator", "A100", "gpus=…"),
        ("env", "A=1", "names and values"),
        ("labels", ["fast"], "names and values"),
        ("python", None, "interpreter"),
        ("placement", "together", "strict_spread"),
        ("labels", {"zone": 5}, "text for each label"),
    ],
)
def test_a_value_that_makes_no_sense_is_quoted_with_what_was_expected(
    field: str, value: Any, expected: str
) -> None:
    with pytest.raises(lp.DefinitionError, match="Resources") as caught:
        lp.Resources(**{field: value})

    assert f"{field}={value!r}" in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        (None, None),
        (4096, 4096),
        ("100B", 100),
        ("500mb", 500 * 10**6),
        ("4GiB", 4 * 2**30),
        (" 1.5 GiB ", 3 * 2**29),
        ("4Gi", 4 * 2**30),
        ("1TB", 10**12),
    ],
)
def test_memory_is_bytes_or_text_with_a_unit_or_without_a_limit(
    memory: int | str | None, size: int | None
) -> None:
    assert lp.Resources(memory=memory).memory_bytes == size


@given(st.integers(min_value=1, max_value=2**60))
def test_a_size_in_words_is_the_size_again_within_half_a_percent(size: int) -> None:
    again = lp.Resources(memory=formatting.size(size)).memory_bytes

    assert again is not None
    assert abs(again - size) <= size / 200 + 1  # bytes are whole


@pytest.mark.parametrize("gpus", [0, 0.0001, 0.999, 1.0, 8])
def test_gpus_are_none_a_share_or_whole_ones(gpus: float) -> None:
    assert lp.Resources(gpus=gpus).gpus == gpus


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (lp.Resources(), ""),
        (lp.Resources(env={"A": "1"}, python="/usr/bin/python3"), ""),
        (lp.Resources(cpus=1, gpus=2, accelerator="A100"), "1 CPU, 2 GPUs A100"),
        (lp.Resources(gpus=0.25, memory="4GiB"), "0.25 GPU, 4 GiB"),
        (lp.Resources(labels={"zone": "a"}, placement="spread"), "on zone=a, spread"),
    ],
)
def test_what_is_asked_for_is_told_in_a_few_words(resources: lp.Resources, words: str) -> None:
    assert resources.asked() == words


# --- where it may be given -----------------------------------------------------------------------


def test_what_is_given_at_launch_stands_in_the_place_of_all_that_the_group_says() -> None:
    program = program_with(cpus=0.5, env={"A": "1"})

    plan = lp.plan(program, "local_mp", resources={"learner": lp.Resources(memory="1MiB")})

    assert plan.workers[0].resources == lp.Resources(memory="1MiB")
    assert plan.workers[0].process.env == {}


def test_resources_of_no_group_and_what_are_no_resources_are_refused_at_launch() -> None:
    wrong: Any = {"learner": {"gpus": 1}}

    with pytest.raises(lp.DefinitionError, match=r"'laerner'.*\['learner'\]"):
        lp.plan(program_with(), "local_mp", resources={"laerner": lp.Resources()})
    with pytest.raises(lp.DefinitionError, match=r"lp\.Resources\(…\), got \{'gpus': 1\}"):
        lp.plan(program_with(), "local_mp", resources=wrong)


@pytest.mark.parametrize(
    ("what", "of_group", "at_launch", "local"),
    [
        ("SPEED", {"env": {"SPEED": "1"}}, None, {"env": {"SPEED": "2"}}),
        ("SPEED", {}, {"env": {"SPEED": "1"}}, {"env": {"SPEED": "2"}}),
        ("Python of group 'learner'", {"python": "1"}, None, {"python": "2"}),
    ],
)
def test_f10_what_two_sources_set_lists_both(
    what: str, of_group: Any, at_launch: Any, local: Any
) -> None:
    resources = at_launch and {"learner": lp.Resources(**at_launch)}
    processes = {"learner": lp.PythonProcess(**local)}

    with pytest.raises(lp.DefinitionError, match=what) as caught:
        lp.plan(program_with(**of_group), "local_mp", processes, resources=resources)

    by_group = "'1' by program.group('learner', resources=…)"
    by_launch = "'1' by resources={'learner': …} at launch"
    assert (by_launch if at_launch else by_group) in str(caught.value)
    assert "'2' by local_resources['learner']" in str(caught.value)


# --- what a plan shows ---------------------------------------------------------------------------


def test_a_plan_shows_resources_only_if_some_are_asked_for() -> None:
    without = str(lp.plan(program_with(env={"A": "1"}), "local_mp"))
    with_some = str(lp.plan(program_with(cpus=0.5, memory="1MiB"), "local_mp"))

    assert "RESOURCES" not in without
    assert "RESOURCES" in with_some
    assert "0.5 CPU, 1 MiB" in with_some
