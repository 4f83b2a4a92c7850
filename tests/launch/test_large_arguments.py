"""Large arrays that nodes are given are in memory once, until a worker writes into its own."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import launchpad as lp
from launchpad.courier.shm import segments
from launchpad.launch.backends.processes.backend import Processes
from launchpad.launch.large_buffers import BufferInFile, aligned
from tests.helpers import large_nodes, scripts
from tests.helpers.large_nodes import ITEMS, SIZE
from tests.helpers.programs import failure_of, single

AT_ONCE = lp.RestartPolicy(max_restarts=1, backoff=0)

SCRIPT = """
import json, resource, sys
import numpy as np
import launchpad as lp
from tests.helpers import large_nodes

if __name__ == "__main__":
    data = np.ones(large_nodes.ITEMS)
    of_script = np.ones(large_nodes.ITEMS)

    def use_global():
        return float(of_script.sum()), large_nodes.own_bytes()

    program = lp.Program("large")
    with program.group("worker"):
        for _ in range(4):
            program.add_node(lp.PyNode(large_nodes.look, data))
    with program.group("closure"):
        for _ in range(2):
            program.add_node(lp.PyNode(use_global))
    program.add_node(lp.PyNode(large_nodes.own_bytes), label="without")
    # what else a launch needs, without any data
    small = lp.Program("small")
    small.add_node(lp.PyNode(large_nodes.own_bytes), label="without")
    lp.run(small, sys.argv[1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = lp.run(program, sys.argv[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print("results", json.dumps([(peak - before) << 10, results]))
"""


def test_workers_have_no_copy_of_their_own_until_they_write() -> None:
    values = np.ones(ITEMS)
    program = lp.Program("large")
    with program.group("worker"):
        for _ in range(3):
            program.add_node(lp.PyNode(large_nodes.read_and_write, values))
    program.add_node(lp.PyNode(large_nodes.look), label="without")

    results = lp.run(program, "test_mp", timeout_s=large_nodes.TIMEOUT_S)

    ((_, without),) = results["without"]
    for index, (when_read, when_written, before, after) in enumerate(results["worker"]):
        assert when_read - without < 0.1 * SIZE
        assert 0.4 * SIZE < when_written - without < 0.6 * SIZE
        assert before == ITEMS
        assert after == (index + 3) * ITEMS // 2
    assert values.sum() == ITEMS


def test_neither_the_script_nor_a_function_by_value_costs_copies(tmp_path: Path) -> None:
    done = scripts.run(scripts.write(tmp_path, SCRIPT), "local_mp")

    assert done.returncode == 0, done.stdout + done.stderr
    grown, results = json.loads(done.stdout.partition("results ")[2])
    assert grown < 0.1 * SIZE
    (without,) = results["without"]
    for ((total, *_),), own in results["worker"]:
        assert total == ITEMS
        assert own - without < 0.1 * SIZE
    for total, own in results["closure"]:
        assert total == ITEMS
        assert own - without < 0.1 * SIZE


def test_what_is_in_a_file_already_is_mapped_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "starts_with_all_payloads", False)
    values = np.ones(1 << 18)
    program = lp.Program("large")
    with program.group("worker"):
        for _ in range(2):
            program.add_node(lp.PyNode(large_nodes.files_behind, values))

    first, second = lp.run(program, "test_mp", timeout_s=large_nodes.TIMEOUT_S)["worker"]

    assert first == second
    assert len(first) == 1
    assert "memfd:courier" in min(first)


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_arrays_arrive_as_they_were_wherever_they_stand(launch_type: str) -> None:
    grid = np.arange(1 << 19, dtype=np.float64).reshape(512, 1024)
    read_only = grid.copy()
    read_only.flags.writeable = False
    given = [grid, {"array": grid + 1}, grid.T, grid[:, ::2], grid[::2], read_only, grid[1:]]
    program = lp.Program("large")
    with program.group("worker"):
        for _ in range(2):
            program.add_node(lp.PyNode(large_nodes.look, *given))

    for seen, _ in lp.run(program, launch_type, timeout_s=large_nodes.TIMEOUT_S)["worker"]:
        assert seen == [
            (grid.sum(), True, True, False),
            (grid.sum() + grid.size, True, True, False),
            (grid.sum(), True, False, True),
            (grid[:, ::2].sum(), True, True, False),
            (grid[::2].sum(), True, True, False),
            (grid.sum(), False, True, False),
            (grid[1:].sum(), True, True, False),
        ]


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_tensors_arrive_as_they_were_and_contiguous_ones_are_no_part_of_payloads(
    launch_type: str,
) -> None:
    torch = pytest.importorskip("torch")
    halves = torch.ones(1 << 20, dtype=torch.bfloat16, requires_grad=True)
    weights = torch.nn.Parameter(torch.ones(512, 1024))
    pictures = torch.ones(8, 4, 128, 128).to(memory_format=torch.channels_last)
    given = [halves, weights, pictures, pictures.to_sparse()]
    program = lp.Program("large")
    with program.group("worker"):
        for _ in range(2):
            program.add_node(lp.PyNode(large_nodes.look_at_tensors, *given))

    buffers = lp.plan(program, launch_type).large_buffers
    results = lp.run(program, launch_type, timeout_s=large_nodes.TIMEOUT_S)["worker"]

    assert [buffer.nbytes for buffer in buffers[:2]] == [halves.nbytes, weights.nbytes]
    for seen in results:
        assert seen == [
            (1 << 20, torch.bfloat16, (1,), True),
            (1 << 19, torch.float32, (1024, 1), True),
            (1 << 19, torch.float32, pictures.stride(), False),
            (1 << 19, torch.float32, None, False),
        ]


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_two_views_of_one_memory_are_apart_in_a_worker(launch_type: str) -> None:
    values = np.ones(1 << 18)
    node = lp.PyNode(large_nodes.are_apart, values, values, values[:])
    program = lp.Program("large")
    program.add_node(node, label="worker")

    results = lp.run(program, launch_type, timeout_s=large_nodes.TIMEOUT_S)

    assert results["worker"] == [(True, 1.0)]


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_without_files_in_memory_arrays_arrive_all_the_same(
    launch_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(segments, "IS_SUPPORTED", False)
    values = np.ones(1 << 18)
    program = lp.Program("large")
    with program.group("worker", restart=AT_ONCE):
        program.add_node(lp.PyNode(large_nodes.write_and_fail_once, values))

    results = lp.run(program, launch_type, timeout_s=large_nodes.TIMEOUT_S)

    assert results["worker"] == [values.size]


@pytest.mark.parametrize("has_memfd", [True, False])
def test_what_is_written_into_a_buffer_of_a_file_stays_there(
    has_memfd: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(segments, "IS_SUPPORTED", has_memfd)
    path = tmp_path / "specs"
    path.write_bytes(bytes(aligned(1)) + b"value" + bytes(1000))
    with path.open("r+b") as file:
        buffer = BufferInFile(file.fileno(), aligned(1), 1005)
        first = buffer.open()
        second = buffer.open()

    first[:1] = b"V"

    assert bytes(first[:5]) == b"Value"
    assert bytes(second[:5]) == b"value"
    assert path.read_bytes()[aligned(1) :].startswith(b"value")


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_pickled_plan_has_each_array_once(protocol: int) -> None:
    values = np.ones(1 << 18)
    program = lp.Program("large")
    with program.group("worker"):
        for each in (values, values, values, values.copy()):
            program.add_node(lp.PyNode(large_nodes.add_up, each))
    plan = lp.plan(program, "ray")

    pickled = pickle.dumps(plan, protocol)

    assert 2 * values.nbytes < len(pickled) < 2.1 * values.nbytes
    for worker in pickle.loads(pickled).workers:
        (buffer,) = worker.payload.buffers
        assert np.frombuffer(buffer.open()).sum() == values.size


def test_an_array_that_is_larger_than_the_workers_memory_is_its_failure_for_lack_of_that() -> None:
    node = lp.PyNode(large_nodes.add_up, np.ones(ITEMS))
    limited = lp.Resources(memory="80MiB")

    failure = failure_of(single(node, "worker", resources=limited))

    assert "no memory for a large array that was given, of 64 MiB" in str(failure)
    assert failure.outcome.out_of_memory


class FillsOneArray:
    """Fills the same array each time that one of its objects is pickled."""

    array: ClassVar[np.ndarray] = np.zeros(ITEMS)

    def __init__(self, number: int) -> None:
        self.number = number

    def __getstate__(self) -> dict[str, object]:
        self.array.fill(self.number)
        return {"array": self.array}


def test_one_array_that_is_filled_anew_for_each_pickle_is_refused() -> None:
    program = lp.Program("large")
    with program.group("worker"):
        for number in range(2):
            program.add_node(lp.PyNode(large_nodes.look, FillsOneArray(number)))

    with pytest.raises(lp.PayloadError, match="has changed while the program was planned"):
        lp.plan(program, "test_mp")


def test_a_plan_counts_what_it_leaves_in_place() -> None:
    values = np.ones(1 << 18)
    program = lp.Program("large")
    program.add_node(lp.PyNode(large_nodes.add_up, values), label="worker")

    plan = lp.plan(program, "local_mp")

    (worker,) = plan.to_dict()["workers"]
    assert 0 < worker["payload_bytes"] - values.nbytes < 10_000
    assert f"{worker['payload_bytes']:,} B" in str(plan)
    json.dumps(plan.to_dict())
