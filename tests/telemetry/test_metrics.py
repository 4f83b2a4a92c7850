"""Numbers of a program: of two looks, of workers that begin anew, of GPUs."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

import launchpad as lp
from launchpad.telemetry import gpu_usage
from tests.waiting import pause, pid_of, until

USAGE = lp.ProcessUsage(cpu_s=3.0, period_s=10.0, memory_bytes=10, threads=1, is_shared=False)
WORKER = lp.WorkerMetrics("a-0", "a", "running", 1, 10.0, False, USAGE)


def metrics(worker: lp.WorkerMetrics, uptime_s: float, run_id: str = "run") -> lp.Metrics:
    edges = lp.edges.Edges((), (), uptime_s)
    return lp.Metrics("program", run_id, uptime_s, uptime_s, (worker,), edges)


@pytest.mark.parametrize(
    ("attempt", "is_shared", "percent"),
    [(1, False, 75.0), (2, False, 6 / 14 * 100), (2, True, 75.0)],
)
def test_between_two_looks_cpu_time_is_that_of_the_while_unless_the_process_is_another(
    attempt: int, is_shared: bool, percent: float
) -> None:
    usage = replace(USAGE, is_shared=is_shared)
    later = replace(usage, cpu_s=6.0, period_s=14.0, memory_bytes=20)
    first = metrics(replace(WORKER, process=usage), 10.0)
    second = metrics(replace(WORKER, attempt=attempt, process=later), 14.0)

    between = second.since(first)

    process = between.workers[0].process
    assert process is not None
    assert (pytest.approx(process.cpu_percent), process.memory_bytes) == (percent, 20)
    assert (between.uptime_s, between.period_s) == (14.0, 4.0)


def test_looks_that_do_not_go_together_are_refused() -> None:
    first, second = metrics(WORKER, 10.0), metrics(WORKER, 11.0)

    with pytest.raises(ValueError, match=r"two looks at one run"):
        second.since(metrics(WORKER, 10.0, "another"))
    with pytest.raises(ValueError, match=r"two looks at one run"):
        second.since(first).since(first)
    with pytest.raises(ValueError, match=r"not of its since"):
        second.since(first).to_prometheus()


class NvmlError(Exception):
    pass


def busy_percent(handle: str) -> types.SimpleNamespace:
    if "MIG" in handle:  # of a part of a GPU it does not know how busy that is
        raise NvmlError("not supported")
    return types.SimpleNamespace(gpu=int(handle.removeprefix("GPU-")))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The part of nvidia-ml-py that is used; while `answers` is clear it hangs."""
    fake: Any = types.ModuleType("pynvml")
    fake.answers = threading.Event()
    fake.answers.set()

    def used_memory(handle: str) -> types.SimpleNamespace:
        fake.answers.wait(60)
        return types.SimpleNamespace(used=1000)

    fake.NVMLError = NvmlError
    fake.nvmlInit = lambda: None
    fake.nvmlDeviceGetHandleByIndex = lambda index: f"GPU-{index}"
    fake.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    fake.nvmlDeviceGetMemoryInfo = used_memory
    fake.nvmlDeviceGetUtilizationRates = busy_percent
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    gpu_usage._library.cache_clear()
    yield fake
    gpu_usage._library.cache_clear()


def test_memory_of_gpus_is_added_up_and_how_busy_they_are_is_an_average(nvml: Any) -> None:
    assert gpu_usage.of(["10", "30"]) == (2000, 20.0)
    assert gpu_usage.of(["MIG-1"]) == (1000, None)


def test_without_library_or_driver_nothing_is_known_of_gpus(
    nvml: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "nvmlInit", Mock(side_effect=NvmlError("no driver")))
    assert gpu_usage.of(["0"]) == (None, None)

    gpu_usage._library.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_usage.of(["0"]) == (None, None)


@pytest.mark.filterwarnings("ignore:threads share one CUDA_VISIBLE_DEVICES")
def test_where_a_driver_hangs_its_workers_are_named_and_the_program_goes_on(
    nvml: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("LP_FAKE_GPUS", "1")
    monkeypatch.setenv("LAUNCHPAD_CLAIMS_DIR", f"{tmp_path}/claims")
    program = lp.Program("gpus")
    with program.group("gpu", resources=lp.Resources(gpus=1)):
        program.add_node(lp.PyNode(lp.wait_for_stop))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="cpu")

    with lp.launch(program, "test_mt") as running:
        until(lambda: [worker.state for worker in running.status()] == ["running"] * 2)
        good = running.metrics()
        nvml.answers.clear()
        hanging = running.metrics(timeout_s=0.2)
        nvml.answers.set()
        again = running.metrics()

    assert [w.process and w.process.gpu_memory_bytes for w in good.workers] == [1000, None]
    assert "gpu-0" in hanging.silent
    assert not hanging.is_exact
    assert (again.silent, again.is_exact) == ((), True)
    assert pickle.loads(pickle.dumps(again)).to_prometheus() == again.to_prometheus()


def test_a_look_does_not_wait_for_a_worker_that_dies_meanwhile() -> None:
    program = lp.Program("dies")
    with program.group("worker", restart=lp.RestartPolicy(backoff=0)):
        for _ in range(2):
            program.add_node(lp.PyNode(lp.wait_for_stop))
    found: list[lp.Metrics] = []

    with lp.launch(program, "test_mp") as running:
        until(lambda: [worker.state for worker in running.status()] == ["running"] * 2)
        dying, slow = (pid_of(running, f"worker-{index}") for index in (0, 1))
        pause(dying)
        pause(slow)
        look = threading.Thread(target=lambda: found.append(running.metrics(timeout_s=100)))
        look.start()
        until(lambda: all(worker.current.asked_counts for worker in running._runner.states()))
        os.kill(dying, signal.SIGKILL)
        until(lambda: next((w.state, w.attempt) for w in running.status()) == ("running", 2))
        os.kill(slow, signal.SIGCONT)
        look.join(60)

        assert not look.is_alive()
        assert (found[0].silent, found[0].edges.lacking) == ((), ("worker-0",))
