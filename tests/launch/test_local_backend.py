"""What one host has, what it refuses, and what a worker gets of it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.backends import local_backend
from launchpad.launch.backends.processes.worker_process import environment
from tests import nodes
from tests.helpers import imported_libraries
from tests.helpers.programs import single

DEADLINE_S = 30
VISIBLE = "CUDA_VISIBLE_DEVICES"
HINTS = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"]
CPUS = len(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def eight_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs that are not there, and an environment that says nothing of them."""
    monkeypatch.setenv("LP_FAKE_GPUS", "8")
    monkeypatch.setenv("LAUNCHPAD_CLAIMS_DIR", str(tmp_path / "claims"))
    for name in (VISIBLE, "CUDA_DEVICE_ORDER", *HINTS):
        monkeypatch.delenv(name, raising=False)


def program_of(**groups: Any) -> lp.Program:
    """Return a program with a group per label, of (number of workers, resources) or of resources."""
    program = lp.Program("p")
    for label, group in groups.items():
        count, resources = group if isinstance(group, tuple) else (1, group)
        with program.group(label, resources=resources):
            for _ in range(count):
                program.add_node(lp.CourierNode(nodes.Counter))
    return program


# --- what is refused -------------------------------------------------------------------------------


ONE = lp.Resources(gpus=1)
CPUS_IN_WORDS = f"server 2×{CPUS} CPU{'s' * (CPUS > 1)} + small 1×0.5 CPU = {2 * CPUS + 0.5:g}"


@pytest.mark.parametrize(
    ("installed", "variable", "groups", "why"),
    [
        (
            "8",
            None,
            {"learner": (2, lp.Resources(gpus=4)), "actor": (8, lp.Resources(gpus=0.25))},
            "learner 2×4 GPUs + actor 8×0.25 GPU = 10, this host has 8: GPU 0–7. Give fewer",
        ),
        (
            "A100:4,H100:2",
            None,
            {"learner": lp.Resources(gpus=3, accelerator="h100")},
            "learner 1×3 GPUs h100 = 3, this host has 6: 4 A100 (GPU 0–3), 2 H100 (GPU 4, 5). They",
        ),
        (
            "8",
            None,
            {"learner": lp.Resources(gpus=6), "actor": (3, lp.Resources(gpus=0.6))},
            "= 7.8, this host has 8: GPU 0–7. They cannot be placed: whole GPUs are not",
        ),
        (
            "8",
            "6,GPU-fake-2",
            {"learner": (3, ONE)},
            "this host has 2 by CUDA_VISIBLE_DEVICES='6,GPU-fake-2', of 8: GPU 6, 2",
        ),
        ("0", None, {"learner": ONE}, "this host has none"),
        ("8", "", {"learner": ONE}, "CUDA_VISIBLE_DEVICES='' hides all 8"),
        (
            "8",
            None,
            {"server": (2, lp.Resources(cpus=CPUS)), "small": lp.Resources(cpus=0.5)},
            f"{CPUS_IN_WORDS}, this host has {CPUS} for us",
        ),
        (
            "8",
            None,
            {"server": (3, lp.Resources(memory="1PiB"))},
            "server 3×1 PiB = 3 PiB, this host has ",
        ),
        (
            "8",
            None,
            {"learner": lp.Resources(gpus=1, env={VISIBLE: "3"})},
            "'3' by program.group('learner', resources=…), and 'the GPUs it gets' by Resources(gpus=1)",
        ),
    ],
)
def test_f10_f11_more_than_this_host_has_is_refused_with_the_arithmetic(
    installed: str,
    variable: str | None,
    groups: dict[str, Any],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LP_FAKE_GPUS", installed)
    if variable is not None:
        monkeypatch.setenv(VISIBLE, variable)

    with pytest.raises(lp.DefinitionError) as caught:
        lp.launch(program_of(**groups), "local_mp")

    assert why in str(caught.value)


def test_gpus_that_are_just_enough_are_given_out_also_where_a_variable_hides_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fits = program_of(learner=lp.Resources(gpus=7), actor=(2, lp.Resources(gpus=0.5)))
    assert [len(worker.gpus) for worker in lp.plan(fits, "local_mp").workers] == [7, 1, 1]

    monkeypatch.setenv(VISIBLE, "6,GPU-fake-2")
    plan = lp.plan(program_of(learner=(2, ONE)), "local_mp")

    assert [worker.gpus for worker in plan.workers] == [("6",), ("2",)]


def test_tenths_of_a_cpu_add_up_to_what_there_is() -> None:
    program = program_of(w=(10 * CPUS, lp.Resources(cpus=0.1)))

    assert len(lp.plan(program, "local_mp").workers) == 10 * CPUS


# --- what a worker gets ----------------------------------------------------------------------------


def test_f11_a_worker_sees_its_own_gpus_or_none_or_what_it_is_told_and_plan_and_status_show_them() -> (
    None
):
    program = program_of(
        learner=lp.Resources(gpus=3),
        actor=lp.Resources(gpus=0.5),
        with_another_interpreter=lp.Resources(gpus=1, python=sys.executable),
        server=lp.Resources(),
        with_a_variable=lp.Resources(env={"LANG": "C"}),
        told=lp.Resources(env={VISIBLE: "5"}),
    )

    plan = lp.plan(program, "test_mp")
    with lp.launch(program, "test_mp", restart=lp.RestartPolicy()) as running:
        clients = {label: running.client(label) for label in running.plan.groups}
        seen = {label: client.environment(VISIBLE) for label, client in clients.items()}
        order = clients["learner"].environment("CUDA_DEVICE_ORDER")
        rows = [row.gpus for row in running.status()]
        with pytest.raises(lp.courier.CourierError):
            clients["actor"].kill_self(signal.SIGKILL)
        attempt = clients["actor"].whoami()["attempt"]
        seen_again = clients["actor"].environment(VISIBLE)

    assert seen == {
        "learner": "0,1,2",
        "actor": "4",
        "with_another_interpreter": "3",
        "server": "",
        "with_a_variable": "",
        "told": "5",
    }
    assert (attempt, seen_again) == (2, "4")
    assert order == "PCI_BUS_ID"
    assert rows == [("0", "1", "2"), ("4",), ("3",), (), (), ()]
    assert "3 GPUs (GPU 0–2)" in str(plan)
    assert plan.to_dict()["workers"][0]["gpus"] == ["0", "1", "2"]


def test_a_colocation_of_processes_gives_each_of_its_parts_what_the_group_asks_for() -> None:
    parts = [lp.PyNode(print_gpus) for _ in range(2)]
    program = single(lp.MultiProcessingColocation(parts), resources=lp.Resources(gpus=1))

    assert [worker.gpus for worker in lp.plan(program, "test_mp").workers] == [("0",), ("1",)]


def print_gpus() -> None:
    """What a worker knows of its GPUs."""
    print(lp.current().gpus)


def test_threads_know_their_gpus_and_are_warned_that_they_share_one_environment() -> None:
    program = lp.Program("p")
    for label, gpus in (("a", 2), ("b", 0.5), ("c", 0)):
        with program.group(label, resources=lp.Resources(gpus=gpus)):
            program.add_node(lp.PyNode(print_gpus))

    with pytest.warns(UserWarning, match=r"CUDA_VISIBLE_DEVICES.* a-0, b-0 which") as caught:
        running = lp.testing.run(program, DEADLINE_S, "test_mt")

    assert len(caught) == 1
    assert [running.logs(label) for label in "abc"] == ["('0', '1')\n", "('2',)\n", "()\n"]


def test_threads_are_warned_that_they_share_cpus_and_memory() -> None:
    program = program_of(a=lp.Resources(cpus=0.5), b=lp.Resources(memory="1MiB"), c=lp.Resources())

    with (
        pytest.warns(UserWarning, match="CPUs and memory: a-0, b-0 cannot"),
        lp.launch(program, "test_mt"),
    ):
        pass


# --- CPUs ------------------------------------------------------------------------------------------


def affinity() -> None:
    """Which CPUs a worker may use, and how many threads it is advised to."""
    print(sorted(os.sched_getaffinity(0)), [os.environ.get(name) for name in HINTS])


def test_workers_with_whole_cpus_are_kept_to_cpus_of_their_own() -> None:
    if CPUS < 2:
        pytest.skip("this needs two CPUs")
    program = lp.Program("p")
    for label, cpus in (("a", 1), ("b", 1), ("c", None)):
        with program.group(label, resources=lp.Resources(cpus=cpus)):
            program.add_node(lp.PyNode(affinity))

    running = lp.testing.run(program, DEADLINE_S, "test_mp")

    first, second, *_ = everybody = sorted(os.sched_getaffinity(0))
    share = max(1, CPUS // 3)
    assert running.logs("a") == f"[{first}] {['1'] * 4}\n"
    assert running.logs("b") == f"[{second}] {['1'] * 4}\n"
    assert running.logs("c") == f"{everybody} {[str(share)] * 4}\n"


def test_a_share_of_a_cpu_is_no_cpu_of_one_s_own_and_numbers_of_threads_that_were_set_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    resources = lp.Resources(cpus=0.5, env={"OMP_NUM_THREADS": "5"})
    program = single(lp.PyNode(affinity), "a", resources=resources)

    running = lp.testing.run(program, DEADLINE_S, "test_mp")

    assert running.logs("a") == f"{sorted(os.sched_getaffinity(0))} {['5', '7', '1', '1']}\n"


def test_no_library_has_counted_its_threads_before_a_worker_begins() -> None:
    program = single(lp.PyNode(imported_libraries.print_numeric_ones), "w")

    running = lp.testing.run(program, DEADLINE_S, "test_mp")

    assert running.logs("w") == "[]\n"


@pytest.mark.parametrize(
    ("cpus", "num_workers", "threads"),
    [(None, 1, CPUS), (None, 1000, 1), (1.5, 1, 2), (3, 1000, 3)],
)
def test_threads_are_as_many_as_cpus_or_the_workers_share_of_the_host(
    cpus: float | None, num_workers: int, threads: int
) -> None:
    worker = lp.WorkerPlan("w-0", "w", 0, 1, "Node", 0, resources=lp.Resources(cpus=cpus))

    variables = environment(worker, "run", num_workers)

    assert [variables[name] for name in HINTS] == [str(threads)] * 4


# --- GPUs that nobody gets ---------------------------------------------------------------------


NONE = lp.Resources(env={VISIBLE: "-1"})


@pytest.mark.parametrize(
    ("installed", "exported", "groups", "why"),
    [
        ("8", None, [lp.Resources()], "and this host has GPUs"),
        ("", "0,1", [lp.Resources()], "although CUDA_VISIBLE_DEVICES=0,1 is set"),
        ("8", None, [NONE, lp.Resources()], "and this host has GPUs"),
        ("8", "", [lp.Resources()], ""),  # none are wanted
        ("8", "-1", [lp.Resources()], ""),
        ("8", None, [lp.Resources(gpus=1)], ""),
        ("8", None, [lp.Resources(env={VISIBLE: "0"})], ""),
        ("8", None, [NONE], ""),
    ],
)
def test_row_03_that_no_worker_gets_a_gpu_is_said_with_what_to_do_unless_it_is_meant(
    monkeypatch: pytest.MonkeyPatch,
    installed: str,
    exported: str | None,
    groups: list[lp.Resources],
    why: str,
) -> None:
    monkeypatch.setenv("LP_FAKE_GPUS", installed)
    if exported is not None:
        monkeypatch.setenv(VISIBLE, exported)
    program = program_of(**{f"g{i}": resources for i, resources in enumerate(groups)})

    warning = local_backend.unused_gpus(lp.plan(program, "local_mp").workers)

    assert ("lp.Resources(gpus=1)" in warning) is bool(why)
    assert why in warning
