"""Who holds which GPU: across programs and processes of a user, also when they are killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

import launchpad as lp
from launchpad.launch.devices import inventory
from launchpad.launch.rundir import claims
from launchpad.launch.rundir.claims import ClaimRecord
from launchpad.launch.rundir.directory import RunDirectory
from tests import nodes
from tests.helpers import scripts
from tests.helpers.programs import single
from tests.waiting import runs, until

DEADLINE_S = 30


@pytest.fixture(autouse=True)
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """GPUs that are not there, and a place for claims on them; the place."""
    monkeypatch.setenv("LP_FAKE_GPUS", "4")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("LAUNCHPAD_CLAIMS_DIR", str(tmp_path / "claims"))
    return tmp_path / "claims"


@pytest.fixture(autouse=True)
def threads_may_share() -> Iterator[None]:
    """They say that they have one environment, which is tested elsewhere."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "threads share")
        yield


def program_of(*gpus: float, name: str = "p") -> lp.Program:
    """A group `w0`, `w1`, … for each number, with one worker that waits to be stopped."""
    program = lp.Program(name)
    for i, number in enumerate(gpus):
        with program.group(f"w{i}", resources=lp.Resources(gpus=number)):
            program.add_node(lp.CourierNode(nodes.Counter))
    return program


def gpus_of(running: lp.Running) -> list[tuple[str, ...]]:
    return [row.gpus for row in running.status()]


def held() -> dict[str, int]:
    """What all runs hold now."""
    with claims.claim_table() as table:
        return dict(table.taken())


# --- programs of one process -----------------------------------------------------------------------


def test_programs_at_once_get_different_gpus_and_shares_of_one_up_to_a_whole_one() -> None:
    with (
        lp.launch(program_of(1, 0.5, name="holder"), "test_mt") as first,
        lp.launch(program_of(0.5, 0.25), "test_mt") as second,
        lp.launch(program_of(1), "test_mt") as third,
    ):
        assert gpus_of(first) == [("0",), ("1",)]
        assert gpus_of(second) == [("1",), ("2",)]
        assert gpus_of(third) == [("3",)]
        assert lp.plan(program_of(4), "test_mt").workers[0].gpus == ("0", "1", "2", "3")
        with pytest.raises(
            lp.LaunchError, match="w0 1×4 GPUs = 4; this host has as many"
        ) as caught:
            lp.launch(program_of(4, name="late"), "test_mt")
        states = [row.state for row in first.status()]

    assert "GPU 0, 0.5 of GPU 1: program 'holder'" in str(caught.value)
    assert f"run {first.run_id}, process {os.getpid()}" in str(caught.value)
    assert "failed" not in states


@pytest.mark.parametrize("launch_type", ["test_mt", "test_mp"])
def test_a_program_that_has_ended_holds_nothing(launch_type: str, four_gpus: Path) -> None:
    for _ in range(2):
        with lp.launch(program_of(4), launch_type) as running:
            assert sum(held().values()) == 40_000
            assert gpus_of(running) == [("0", "1", "2", "3")]

    assert held() == {}
    assert [path.name for path in four_gpus.iterdir()] == ["mutex"]


def test_a_launch_that_fails_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("no space left on the device")

    monkeypatch.setattr(RunDirectory, "make_runtime", fails)
    with pytest.raises(lp.LaunchError, match="no space left"):
        lp.launch(program_of(1), "test_mp")

    assert held() == {}


def test_who_asks_for_no_gpu_claims_none(four_gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_at() -> None:
        raise AssertionError("GPUs were looked for")

    monkeypatch.setattr(inventory, "installed", looked_at)

    with lp.launch(program_of(0), "test_mt") as running:
        assert gpus_of(running) == [()]
        assert not four_gpus.exists()


def test_cpus_that_other_programs_are_kept_to_are_left_to_them() -> None:
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        pytest.skip("this needs two CPUs")
    program = single(lp.CourierNode(nodes.Counter), resources=lp.Resources(cpus=1))

    with lp.launch(program, "test_mp") as first, lp.launch(program, "test_mp") as second:
        kept = [running.plan.workers[0].cpus for running in (first, second)]

    assert kept == [(mine[0],), (mine[1],)]


def test_many_launches_at_once_never_get_the_same_gpu() -> None:
    taken: list[str] = []
    refused: list[lp.LaunchError] = []
    ready, leave = threading.Barrier(6), threading.Event()

    def one() -> None:
        with ExitStack() as stack:
            ready.wait(DEADLINE_S)
            try:
                running = stack.enter_context(lp.launch(program_of(1), "test_mt"))
                taken.append(gpus_of(running)[0][0])
            except lp.LaunchError as error:
                refused.append(error)
            leave.wait(DEADLINE_S)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    until(lambda: len(taken) + len(refused) == 6, DEADLINE_S)
    leave.set()
    for thread in threads:
        thread.join(DEADLINE_S)

    assert sorted(taken) == ["0", "1", "2", "3"]
    assert len(refused) == 2


def test_the_directory_for_claims_is_closed_to_others_or_refused(four_gpus: Path) -> None:
    with lp.launch(program_of(1), "test_mt"):
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in four_gpus.iterdir()}
        mode = stat.S_IMODE(four_gpus.stat().st_mode)
    four_gpus.chmod(0o755)
    with pytest.raises(lp.LaunchError, match="yours alone"):
        lp.launch(program_of(1), "test_mt")

    assert mode == 0o700
    assert set(modes.values()) == {0o600}


def test_a_launch_that_is_stopped_while_it_chooses_is_named_and_not_waited_for_for_ever(
    four_gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_MUTEX_S", 0.1)

    with claims.claim_table(), pytest.raises(lp.LaunchError, match=r"locked .*mutex for"):
        lp.launch(program_of(1), "test_mt")


# --- other processes -------------------------------------------------------------------------------

HOLDER = """
import ctypes, os, time
import launchpad as lp

class Worker:
    def pid(self):
        return os.getpid()

    def hog(self):
        ctypes.PyDLL(None).sleep(1000)  # no other thread of this process runs any more

program = lp.Program("holder")
with program.group("w", resources=lp.Resources(gpus=4)):
    program.add_node(lp.CourierNode(Worker))
running = lp.launch(program, {launch_type!r}, terminal="output_to_files")
worker = running.client("w")
pid = worker.pid()
if {forks} and os.fork() == 0:
    time.sleep(1000)
if {hogs}:
    worker.futures.hog()
    try:
        while True:
            worker.with_options(timeout_s=0.5).pid()
    except lp.courier.CourierError:
        pass
print("holds", running.run_id, pid, flush=True)
time.sleep(1000)
"""


class Holder(NamedTuple):
    """A script that holds all GPUs."""

    process: subprocess.Popen[str]
    run_id: str
    worker: psutil.Process


@pytest.fixture
def hold() -> Iterator[Callable[..., Holder]]:
    """Starts scripts that hold all GPUs, and leaves nothing of them."""
    started: list[subprocess.Popen[str]] = []

    def start(launch_type: str, *, forks: bool = False, hogs: bool = False) -> Holder:
        code = HOLDER.format(launch_type=launch_type, forks=forks, hogs=hogs)
        environment = scripts.environment(PYTHONWARNINGS="ignore")
        command = [sys.executable, "-c", code]
        process = scripts.start(command, env=environment, start_new_session=True)
        started.append(process)
        _, run_id, worker = scripts.read_until(process, "holds").split()
        return Holder(process, run_id, psutil.Process(int(worker)))

    yield start
    for process in started:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=DEADLINE_S)


def test_gpus_that_another_process_holds_are_free_when_it_and_its_workers_are_dead(
    hold: Callable[..., Holder],
) -> None:
    holder = hold("local_mp")
    assert sum(held().values()) == 40_000
    with pytest.raises(lp.LaunchError) as caught:
        lp.launch(program_of(1), "test_mt")

    os.kill(holder.process.pid, signal.SIGKILL)
    until(lambda: not held())

    assert not runs(holder.worker)
    assert f"GPU 0–3: program 'holder', run {holder.run_id}, process {holder.process.pid}" in str(
        caught.value
    )
    with lp.launch(program_of(4), "test_mt") as running:
        assert gpus_of(running) == [("0", "1", "2", "3")]


def test_a_launch_waits_for_the_gpus_of_a_launcher_that_was_just_killed(
    hold: Callable[..., Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = hold("local_mp")
    above = holder.worker.parents()[:2]  # the forkserver and the subreaper
    for process in above:
        process.suspend()  # until the launch has seen that the GPUs are held
    looked = ClaimRecord.launcher_is_dead.fget

    def looks(holding: ClaimRecord) -> bool:
        launcher_is_dead = looked(holding)
        for process in above:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        return bool(launcher_is_dead)

    monkeypatch.setattr(ClaimRecord, "launcher_is_dead", property(looks))
    holder.process.kill()
    holder.process.wait(DEADLINE_S)

    with lp.launch(program_of(4), "test_mt") as running:
        assert not runs(holder.worker)
        assert gpus_of(running) == [("0", "1", "2", "3")]


def test_children_that_a_killed_launcher_had_forked_hold_nothing(
    hold: Callable[..., Holder],
) -> None:
    holder = hold("local_mt", forks=True)
    children = [
        p for p in psutil.Process(holder.process.pid).children() if p.cmdline()[1:2] == ["-c"]
    ]

    os.kill(holder.process.pid, signal.SIGKILL)
    until(lambda: not held())

    assert any(child.is_running() for child in children)


def test_gpus_stay_held_while_a_worker_runs_whose_subreaper_and_forkserver_were_killed(
    hold: Callable[..., Holder],
) -> None:
    holder = hold("local_mp", hogs=True)
    above = holder.worker.parents()[:2]  # the forkserver and the subreaper
    for process in above:
        process.suspend()  # so that neither acts when the other is killed

    for pid in (*(process.pid for process in above), holder.process.pid):
        os.kill(pid, signal.SIGKILL)
    psutil.wait_procs(above, DEADLINE_S)
    holder.process.wait(DEADLINE_S)
    try:
        still_held = held()
    finally:
        holder.worker.kill()

    assert sum(still_held.values()) == 40_000
    until(lambda: not held())


def test_a_program_launched_by_a_worker_gets_what_the_worker_has() -> None:
    program = single(lp.PyNode(launch_within), "w", resources=lp.Resources(gpus=2))

    running = lp.testing.run(program, DEADLINE_S, "test_mp")

    assert "outer ('0', '1'), inner [('1',), ('0',)]" in running.logs("w")
    assert "too much: DefinitionError" in running.logs("w")


def launch_within() -> None:
    """Launches a program of its own within the GPUs that it has."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(reversed(lp.current().gpus))
    with lp.launch(program_of(1, 1), "test_mt") as running:
        print(f"outer {lp.current().gpus}, inner {gpus_of(running)}")
    try:
        lp.launch(program_of(3), "test_mt")
    except lp.DefinitionError as error:
        print(f"too much: {type(error).__name__}: {error}")
