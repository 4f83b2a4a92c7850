"""Claims on the GPUs of a node, by workers whose launcher may be on another host."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import launchpad as lp
from launchpad.errors import LaunchError
from launchpad.launch.backends.remote import device_claims
from launchpad.launch.devices.device import Device
from launchpad.launch.plan import WorkerPlan
from launchpad.launch.rundir import claims
from launchpad.launch.rundir.claims import Claim, ClaimTable

GPUS = tuple(Device(i, f"GPU-{i}", "A100") for i in range(2))


@pytest.fixture(autouse=True)
def own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHPAD_CLAIMS_DIR", str(tmp_path / "claims"))


def worker(gpus: float, *ids: str) -> WorkerPlan:
    """Return the plan of a worker to which the launcher has given these GPUs."""
    program = lp.Program("claiming")
    with program.group("worker", resources=lp.Resources(gpus=gpus)):
        program.add_node(lp.PyNode(print))
    (planned,) = lp.plan(program, "ssh", hosts=["h1"]).workers
    return replace(planned, gpus=ids)


def claim(run_id: str, launch: str, planned: WorkerPlan) -> Claim:
    return device_claims.claim(run_id, launch, "claiming", planned, GPUS)


def test_a_gpu_that_another_launch_has_claimed_is_refused_with_who_has_it() -> None:
    holder = claim("one", "first", worker(1, "0"))

    with pytest.raises(LaunchError) as caught:
        claim("two", "second", worker(2, "0", "1"))

    assert f"worker-0 was given GPU 0, 1 of {os.uname().nodename}" in str(caught.value)
    assert f"GPU 0: program 'claiming', run first, process {os.getpid()}" in str(caught.value)
    claim("three", "third", worker(1, "1")).release()
    holder.release()


def test_shares_of_a_gpu_are_claimed_up_to_a_whole_one() -> None:
    halves = [claim(f"half {n}", f"launch {n}", worker(0.5, "0")) for n in range(2)]

    with pytest.raises(LaunchError, match=r"hold:\n  0.5 of GPU 0: .*\n  0.5 of GPU 0: "):
        claim("third", "launch 3", worker(0.5, "0"))

    for half in halves:
        half.release()


def test_a_gpu_that_the_former_attempt_still_holds_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    former = claim("attempt 1", "launch", worker(1, "0"))
    has_looked = threading.Event()
    taken: Callable[[ClaimTable], object] = ClaimTable.taken

    def look(table: ClaimTable) -> object:
        has_looked.set()
        return taken(table)

    monkeypatch.setattr(ClaimTable, "taken", look)
    release = threading.Thread(target=lambda: has_looked.wait(60) and former.release())
    release.start()

    claim("attempt 2", "launch", worker(1, "0")).release()

    release.join()


def test_what_a_launch_itself_holds_on_a_host_does_not_count_when_it_connects_again() -> None:
    holders = [
        claim("own", "launch", worker(1, "0")),
        claim("other", "other launch", worker(1, "1")),
    ]

    with claims.claim_table() as table:
        taken = table.taken(besides="launch")

    assert list(taken) == ["GPU-1"]
    for holder in holders:
        holder.release()
