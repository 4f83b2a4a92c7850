"""Workers with a GPU: which one they see, what runs on it, and what is left of it after a kill."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.devices import inventory
from launchpad.telemetry import gpu_usage
from tests.gpu.conftest import STAND_IN

if not os.environ.get(STAND_IN) and not inventory.installed():
    pytest.skip(
        f"this host has no NVIDIA GPU, say nvidia-smi and nvidia-ml-py; {STAND_IN}=1 pretends one",
        allow_module_level=True,
    )
pytest.importorskip("torch")
from tests.helpers import gpu_work

PRELOAD = ["torch", "tests.helpers.gpu_work"]
DEADLINE_S = 90.0
MEBIBYTE = 1 << 20


def program_of(node: Callable[[], Any], gpus: list[float]) -> lp.Program:
    """Return a program with one worker for each entry of `gpus`, in groups named a, b, …"""
    program = lp.Program("gpu")
    for label, share in zip("abcd", gpus, strict=False):
        with program.group(label, resources=lp.Resources(gpus=share)):
            program.add_node(node())
    return program


def ranks_of(function: Callable[..., Any], n: int, *args: Any, **kwargs: Any) -> lp.Program:
    """Return a program of ranks that share one GPU."""
    program = lp.Program("ranks")
    with program.group("rank", resources=lp.Resources(gpus=1 / n if n > 1 else 1)):
        for _ in range(n):
            program.add_node(lp.CollectiveNode(function, *args, **kwargs))
    return program


def run(program: lp.Program, launch_type: str = "local_mp") -> dict[str, list[Any]]:
    preload = PRELOAD if launch_type == "local_mp" else None
    return lp.run(program, launch_type, preload=preload, timeout_s=DEADLINE_S)


@pytest.fixture(params=["local_mp", "ray"])
def launch_type(request: pytest.FixtureRequest) -> str:
    """A launch type whose workers are processes. Ray sees only real GPUs."""
    name = str(request.param)
    if name == "ray":
        pytest.importorskip("ray")
        if os.environ.get(STAND_IN):
            pytest.skip("Ray doesn't see a pretended GPU")
    return name


# --- which GPU a worker sees -----------------------------------------------------------------------


def test_a_worker_with_a_gpu_computes_on_it_and_one_without_sees_none(
    launch_type: str, device: str
) -> None:
    program = program_of(lambda: lp.PyNode(gpu_work.compute, device), [1])
    program.add_node(lp.PyNode(gpu_work.see), label="without")

    results = run(program, launch_type)

    (with_gpu,) = results["a"]
    assert len(with_gpu.gpus) == 1
    assert with_gpu.product == 1024
    assert with_gpu.count == (1 if device == "cuda" else 0)
    # A context of CUDA doesn't survive a fork, so none was there before it.
    assert not with_gpu.had_context
    assert results["without"] == [((), "")]


def test_two_halves_of_a_gpu_are_the_same_gpu(launch_type: str, device: str) -> None:
    program = program_of(lambda: lp.PyNode(gpu_work.compute, device), [0.5, 0.5])

    results = run(program, launch_type)

    (first,) = results["a"]
    (second,) = results["b"]
    assert first.visible == second.visible != ""
    assert first.product == second.product == 1024


def test_workers_with_whole_gpus_see_different_ones() -> None:
    n_gpus = len(inventory.installed())
    if n_gpus < 2:
        pytest.skip(f"this takes two GPUs, and this host has {n_gpus}")

    results = run(program_of(lambda: lp.PyNode(gpu_work.see), [1, 1]))

    assert results["a"] != results["b"]


def test_more_gpus_than_there_are_are_refused_with_the_sum() -> None:
    n_gpus = len(inventory.installed())
    program = program_of(lambda: lp.PyNode(gpu_work.see), [n_gpus, 0.5])

    with pytest.raises(lp.DefinitionError) as refused:
        lp.plan(program, "local_mp")

    assert f"= {n_gpus}.5, this host has {n_gpus}:" in str(refused.value)


# --- what runs on it -------------------------------------------------------------------------------


def test_ranks_that_share_a_gpu_reduce_by_gloo(device: str) -> None:
    results = run(ranks_of(gpu_work.reduce, 2, device, backend="gloo"))

    assert results["rank"] == [3, 3]


@pytest.mark.usefixtures("real_gpu")
def test_one_rank_reduces_by_nccl() -> None:
    results = run(ranks_of(gpu_work.reduce, 1, "cuda", backend="nccl"))

    assert results["rank"] == [1]


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_ddp_trains_and_all_ranks_end_with_the_same_weights(device: str, n_ranks: int) -> None:
    # nccl refuses two ranks on one GPU.
    backend = "nccl" if device == "cuda" and n_ranks == 1 else "gloo"

    results = run(ranks_of(gpu_work.train_ddp, n_ranks, device, backend, 5))

    assert len(set(results["rank"])) == 1


def test_fsdp_trains(device: str) -> None:
    backend = "nccl" if device == "cuda" else "gloo"

    (digest,) = run(ranks_of(gpu_work.train_fsdp, 1, device, backend, 5))["rank"]

    assert len(digest) == 64


def test_jax_computes_on_the_gpu_of_its_worker(device: str) -> None:
    pytest.importorskip("jax")
    program = program_of(lambda: lp.PyNode(gpu_work.use_jax), [1])

    results = run(program)

    assert results["a"] == [("gpu" if device == "cuda" else "cpu", 499500)]


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_an_array_of_the_gpu_arrives_on_the_gpu_of_the_receiver(device: str, kind: str) -> None:
    pytest.importorskip(kind)
    program = lp.Program("sent")
    with program.group("echo", resources=lp.Resources(gpus=0.5)):
        echo = program.add_node(lp.CourierNode(gpu_work.Echo))
    with program.group("sender", resources=lp.Resources(gpus=0.5)):
        program.add_node(lp.PyNode(gpu_work.send, echo, kind, device))

    results = run(program)

    assert results["sender"] == [(device, device, 999000)]


@pytest.mark.usefixtures("real_gpu")
def test_a_module_that_opens_the_gpu_is_refused_before_the_fork() -> None:
    program = program_of(lambda: lp.PyNode(gpu_work.see), [1])

    with pytest.raises(lp.LaunchError, match=r"tests\.helpers\.opens_a_gpu"):
        lp.run(program, "local_mp", preload=["tests.helpers.opens_a_gpu"], timeout_s=DEADLINE_S)


# --- what is said of it, and what is left ----------------------------------------------------------


@pytest.mark.usefixtures("real_gpu")
def test_metrics_say_how_much_memory_of_the_gpu_is_in_use() -> None:
    pytest.importorskip("pynvml")
    program = program_of(lambda: lp.CourierNode(gpu_work.Holder, "cuda"), [1])
    with lp.launch(program, "local_mp", preload=PRELOAD) as running:
        (holder,) = running.clients("a")
        holder.hold(512 * MEBIBYTE)

        (worker,) = running.metrics().workers

        assert worker.process is not None
        assert worker.process.gpu_memory_bytes is not None
        assert worker.process.gpu_memory_bytes >= 512 * MEBIBYTE
        assert worker.process.gpu_percent is not None
        running.stop()


@pytest.mark.usefixtures("real_gpu")
def test_a_worker_that_is_killed_leaves_no_memory_of_the_gpu_in_use() -> None:
    pytest.importorskip("pynvml")
    gpus = [device.uuid for device in inventory.installed()][:1]
    program = lp.Program("killed")
    with program.group("a", resources=lp.Resources(gpus=1), restart=lp.RestartPolicy()):
        program.add_node(lp.CourierNode(gpu_work.Holder, "cuda"))
    before = used_bytes(gpus)
    with lp.launch(program, "local_mp", preload=PRELOAD) as running:
        (holder,) = running.clients("a")
        holder.hold(1024 * MEBIBYTE)
        assert used_bytes(gpus) >= before + 1024 * MEBIBYTE
        (worker,) = running.status()
        assert worker.pid is not None

        os.kill(worker.pid, signal.SIGKILL)

        # The next attempt of the worker opens no GPU until it is asked to.
        until_used_is_below(gpus, before + 64 * MEBIBYTE)
        assert holder.hold(MEBIBYTE) == MEBIBYTE
        running.stop()


def used_bytes(gpus: list[str]) -> int:
    n_bytes, _ = gpu_usage.of(gpus)
    assert n_bytes is not None
    return n_bytes


def until_used_is_below(gpus: list[str], most: int) -> None:
    """Wait until the driver says that less memory than this is in use."""
    deadline = time.monotonic() + DEADLINE_S
    while used_bytes(gpus) >= most:
        assert time.monotonic() < deadline, f"{used_bytes(gpus)} bytes are still in use"
        time.sleep(0.1)
