"""F14, F37, F38, F46: what becomes of the workers' output, whatever happens to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import launchpad as lp
from tests.faults.backends import everywhere_by_script
from tests.helpers import printing_nodes
from tests.helpers.programs import failure_of, single

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def logs_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))


@pytest.mark.slow
def test_f14_a_slow_constructor_is_named_while_clients_wait_for_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    program = lp.Program("slow")
    slow = program.add_node(lp.CourierNode(printing_nodes.SlowToBuild, 4.0), label="slow")
    program.add_node(lp.PyNode(printing_nodes.calls, slow), label="caller")

    with lp.launch(program, "local_mp") as running:
        running.wait(DEADLINE_S)

    shown = capfd.readouterr().out
    assert re.search(
        r"launchpad \| [01] of 2 workers (is|are) ready after \d+ s; still starting: slow-0", shown
    )
    assert re.search(r"caller-0 +\| the answer is 7", shown)


def test_f38_a_worker_runs_on_when_its_log_may_not_grow_and_the_user_is_told_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    node = lp.PyNode(printing_nodes.with_little_room, 4096)

    with lp.launch(single(node), "local_mp") as running:
        running.wait(DEADLINE_S)

    shown = capfd.readouterr().out
    assert running.status()[0].state in ("succeeded", "stopped")
    assert shown.count("cannot grow (File too large)") == 1
    assert "launchpad | the logs in" in shown


@everywhere_by_script
def test_f38_a_program_runs_on_when_the_disk_of_its_logs_is_full(
    launch_type: str,
    small_disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(small_disk))
    program = lp.Program("logs")
    with program.group("printer"):
        for _ in range(2):
            program.add_node(lp.PyNode(printing_nodes.until_it_is_full, str(tmp_path)))

    with lp.launch(program, launch_type) as running:
        running.wait(DEADLINE_S)

    assert {status.state for status in running.status()} == {"succeeded"}
    assert (tmp_path / "came-so-far").exists()
    assert capfd.readouterr().out.count("cannot grow (No space left on device)") == 1


def test_f46_a_worker_that_closes_its_descriptors_and_moves_away_is_still_logged() -> None:
    failure = failure_of(single(lp.PyNode(printing_nodes.closes_its_descriptors)))

    log = Path(failure.log_path).read_text()
    assert log.startswith("before\nafter\nan error\n")
    assert "ValueError: seen all the same" in log


@pytest.mark.slow
@everywhere_by_script
def test_f37_of_ten_thousand_lines_a_second_from_each_worker_none_is_lost(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, launch_type: str
) -> None:
    monkeypatch.setenv("LAUNCHPAD_LOG_MAX_MB", "0.5")
    monkeypatch.setenv("LAUNCHPAD_LOG_FILES", "1000")
    workers, rate, seconds = 4, 10_000, 1
    program = lp.Program("flood")
    with program.group("printer"):
        for _ in range(workers):
            program.add_node(lp.PyNode(printing_nodes.flood, rate, seconds))

    with lp.launch(program, launch_type) as running:
        running.wait(100)

    expected = [f"line {i} of" for i in range(rate * seconds)]
    for i in range(workers):
        lines = running.logs(f"printer-{i}").splitlines()
        assert [" ".join(line.split()[:3]) for line in lines] == expected
    shown = re.findall(r"^printer-(\d) \| line (\d+) of", capfd.readouterr().out, flags=re.M)
    for i in range(workers):
        assert [int(n) for worker, n in shown if int(worker) == i] == list(range(rate * seconds))
