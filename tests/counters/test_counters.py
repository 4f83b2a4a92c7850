"""Counters: pure, and with a counter that is killed."""

from __future__ import annotations

import os
import signal
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import launchpad as lp
from launchpad.counters.counts_by_client import CountsByClient
from tests.helpers import pool_nodes
from tests.waiting import pid_of, until

DEADLINE_S = 60.0


def test_a_report_that_comes_twice_or_late_is_counted_once() -> None:
    counts = CountsByClient()

    for n in (2, 5, 5, 2):
        counts.report("a", "worker-0", {"steps": n})
    counts.report("b", "worker-1", {"steps": 1, "episodes": 1})

    assert counts.totals() == {"episodes": 1, "steps": 6}


def test_the_counts_of_clients_that_are_gone_stay() -> None:
    counts = CountsByClient()
    for client, owner in (("a", "worker-0"), ("b", "worker-1")):
        counts.report(client, owner, {"steps": 2})

    counts.fold(lambda owner: owner == "worker-0")

    assert counts.totals() == {"steps": 4}
    assert set(counts.owners) == set(counts.of_clients) == {"b"}


def test_counts_are_shared_and_have_prefixes(tmp_path: Path) -> None:
    program = lp.Program("counter")
    program.add_node(lp.CounterNode(), label="counter")

    for launch in range(2):
        with lp.launch(program, "test_mt", state=tmp_path) as running:
            counter = running.client("counter")
            actor = counter.child("actor")
            assert counter.increment(steps=1) == {
                **({"actor_main_steps": 2, "actor_steps": 3} if launch else {}),
                "steps": launch + 1,
            }
            actor.increment(steps=3)
            actor.child("main").increment(steps=2)
            totals = actor.wait_for(steps=3, timeout_s=DEADLINE_S)
            with pytest.raises(TimeoutError, match="actor_steps': "):
                actor.wait_for(steps=100, timeout_s=0.01)
            with pytest.raises(ValueError, match="counts only grow"):
                counter.increment(steps=-1)
            assert counter.get_counts() == totals

    assert totals == {"actor_main_steps": 4, "actor_steps": 6, "steps": 2}


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_numbers_of_numpy_are_added_as_pythons_are(launch_type: str) -> None:
    increments: dict[str, list[Any]] = {
        "small": [np.uint8(200)] * 3,
        "large": [np.int32(2**31 - 1), np.int32(5)],
        "array": [np.array(200, np.uint8)] * 2,
        "flag": [np.True_, True],
        "half": [np.float16(60000.0)] * 3,
        "ratio": [Fraction(1, 2), np.float32(1.5)],
    }
    program = lp.Program("counter")
    program.add_node(lp.CounterNode(), label="counter")

    with lp.launch(program, launch_type) as running:
        counter = running.client("counter")
        for name, numbers in increments.items():
            for number in numbers:
                counter.increment(**{name: number})
        totals = counter.wait_for(small=np.int64(600), timeout_s=DEADLINE_S)

    expected = {"small": 600, "large": 2**31 + 4, "array": 400, "flag": 2, "half": 180000.0}
    assert totals == {**expected, "ratio": 2.0}
    kinds = {name: type(total) for name, total in totals.items()}
    assert kinds == {**dict.fromkeys(expected, int), "half": float, "ratio": float}


REFUSED = ["3", None, 1j, -1, np.int8(-1), np.nan, np.inf, np.float32(np.inf), np.ones(2)]


@pytest.mark.parametrize("number", REFUSED, ids=repr)
def test_what_is_no_number_of_zero_or_more_is_refused(number: Any) -> None:
    counter = lp.Counter(Mock())

    with pytest.raises(ValueError, match="counts only grow"):
        counter.increment(steps=number)


def test_a_wait_for_no_number_is_refused() -> None:
    counter = lp.Counter(Mock())

    with pytest.raises(ValueError, match="steps=nan: a count is compared with a number"):
        counter.wait_for(steps=np.nan)


def test_a_counter_that_is_killed_loses_nothing_of_clients_that_still_run() -> None:
    program = lp.Program("counter")
    with program.group("counter", restart=lp.RestartPolicy(backoff=0)):  # it is never saved
        counter = program.add_node(lp.CounterNode())
    with program.group("worker"):
        for _ in range(2):
            program.add_node(lp.PyNode(pool_nodes.count_to, counter, 300))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, "test_mp") as running:
        shown = running.client("counter")
        shown.wait_for(steps=100, timeout_s=DEADLINE_S)
        os.kill(pid_of(running, "counter-0"), signal.SIGKILL)
        until(lambda: running.status()[0].attempt == 2)
        running.results("worker", DEADLINE_S)
        totals = shown.get_counts()

    assert totals == {"steps": 600}
