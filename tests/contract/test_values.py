"""What workers return, what they save and what was imported for them, on every backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from tests.helpers import group_nodes, large_nodes

DEADLINE_S = 90
AT_ONCE = lp.RestartPolicy(max_restarts=5, backoff=0)


# --- large arguments -----------------------------------------------------------------------------


def test_each_attempt_has_a_large_array_as_it_was_at_the_launch(launch_type: str) -> None:
    values = np.ones(1 << 18)
    program = lp.Program("large")
    with program.group("worker", restart=AT_ONCE):
        for _ in range(2):
            program.add_node(lp.PyNode(large_nodes.write_and_fail_once, values))

    with lp.launch(program, launch_type) as running:
        values[:] = 9
        results = running.results("worker", DEADLINE_S)

    assert results == [values.size] * 2


# --- results -----------------------------------------------------------------------------------


def test_what_workers_return_is_there_by_replica_when_they_have_ended(launch_type: str) -> None:
    class LocalLoss:
        def __init__(self, value: int) -> None:
            self.value = value

    program = lp.Program("results")
    with program.group("measured"):
        for size in (10, 3_000_000):  # the second by another way than in a small message
            program.add_node(lp.PyNode(group_nodes.measure, size))
    program.add_node(lp.PyNode(lambda: LocalLoss(7)), label="local")
    program.add_node(lp.PyNode(group_nodes.measure_later), label="later")
    program.add_node(lp.PyNode(group_nodes.return_a_lock), label="locked")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")
    program.add_node(lp.CourierNode(group_nodes.Runs), label="runs")
    with program.group("again", restart=AT_ONCE):
        program.add_node(lp.PyNode(group_nodes.return_attempt))
    serving = lp.CourierNode(group_nodes.Adder)
    together = [lp.PyNode(group_nodes.measure_later), serving, lp.CourierNode(group_nodes.Runs)]
    program.add_node(lp.MultiThreadingColocation(together), label="threads")
    parts = [lp.PyNode(group_nodes.measure_later), lp.PyNode(group_nodes.measure_later)]
    program.add_node(lp.MultiProcessingColocation(parts), label="parts")
    program.add_node(lp.CourierNode(group_nodes.Adder), label="server")

    with lp.launch(program, launch_type) as running:
        measured = running.results("measured", DEADLINE_S)
        (local,) = running.results("local", DEADLINE_S)
        results = {
            label: running.results(label, DEADLINE_S)
            for label in ("later", "runs", "again", "threads", "parts")
        }
        with pytest.raises(TimeoutError, match="no result of server-0 yet"):
            running.results("server", 0.1)
        with pytest.raises(lp.ResultError, match=r"locked-0 returned .*lock.*cannot be sent"):
            running.results("locked", DEADLINE_S)
        with pytest.raises(KeyError, match="no group 'measure'"):
            running.results("measure")

    assert [loss.value for loss, _ in measured] == [0, 1]
    for size, (_, array) in zip((10, 3_000_000), measured, strict=True):
        np.testing.assert_array_equal(array, np.arange(size))
        array[0] = 1  # it is private, and can be changed
    assert (type(local), local.value) == (LocalLoss, 7)
    assert results == {
        "later": ["later"],
        "runs": [{"steps": 3}],
        "again": [3],
        "threads": [("later", None, {"steps": 3})],
        "parts": [("later", "later")],
    }
    assert running.results("server") == [None]


def test_run_returns_the_results_of_all_groups_or_raises_the_first_cause(launch_type: str) -> None:
    program = lp.Program("runs")
    program.add_node(lp.PyNode(group_nodes.measure_later), label="later")

    assert lp.run(program, launch_type, timeout_s=DEADLINE_S) == {"later": ["later"]}

    with program.group("bad"):
        program.add_node(lp.PyNode(group_nodes.return_attempt))
    with pytest.raises(lp.ProgramFailed, match=r"bad-0 failed in run.*not yet"):
        lp.run(program, launch_type, timeout_s=DEADLINE_S)


# --- state -------------------------------------------------------------------------------------


def folder(launch_type: str, path: Path) -> dict[str, Any]:
    """The options of a launch that saves in this folder."""
    if launch_type == "test_kubernetes":
        return {"state": "exp1", "state_volume": {"hostPath": {"path": str(path)}}}
    return {"state": path / "exp1"}


def test_a_launch_goes_on_where_the_one_before_it_ended(launch_type: str, tmp_path: Path) -> None:
    def program(limit: int, dies_at: int = 0) -> lp.Program:
        made = lp.Program("state")
        with made.group("progress", restart=AT_ONCE):
            for _ in range(2):
                made.add_node(lp.PyClassNode(group_nodes.Progress, limit, dies_at))
        with made.group("files"):
            for _ in range(2):
                made.add_node(lp.PyNode(group_nodes.exchange_files))
        made.add_node(lp.CourierNode(group_nodes.Tally), label="tally")
        made.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")
        return made

    options = folder(launch_type, tmp_path)
    with lp.launch(program(5, dies_at=3), launch_type, **options) as running:
        assert running.results("progress", DEADLINE_S) == [[3, 2, True, [4, 5]]] * 2
        assert running.results("files", DEADLINE_S) == [["files-0", "files-1"]] * 2
        assert [running.client("tally").add() for _ in range(3)] == [1, 2, 3]
        with pytest.raises(lp.LaunchError, match=r"in use by.*Two launches cannot save into one"):
            lp.launch(program(1), launch_type, **options)

    with lp.launch(program(7), launch_type, **options) as running:
        assert running.results("progress", DEADLINE_S) == [[5, 1, True, [6, 7]]] * 2
        assert running.client("tally").add() == 4


# --- preload -----------------------------------------------------------------------------------


def test_a_module_is_there_before_the_workers_that_wanted_it(launch_type: str) -> None:
    program = lp.Program("preload")
    module = "xml.sax.saxutils"  # of no use to anything else here
    with program.group("look", restart=AT_ONCE, preload=[module]):
        for _ in range(2):
            program.add_node(lp.PyNode(group_nodes.look_at_modules, module))

    found = lp.run(program, launch_type, timeout_s=DEADLINE_S, preload=["numpy"])["look"]

    if launch_type in ("test_mt", "test_mp", "test_ray", "test_spark"):  # a pod has one of its own
        assert [was_there for was_there, *_ in found] == [True, True]
    assert [attempt for _, attempt, *_ in found] == [2, 2]
    assert len({number for *_, number, _ in found}) == 2, "their random numbers are the same"
