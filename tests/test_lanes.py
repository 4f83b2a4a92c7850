"""The lanes that CI chooses by the table .ci/lanes, and what it does with tests that fail once."""

from __future__ import annotations

import datetime
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests import mutations

ROOT = Path(__file__).parents[1]
MONDAY = datetime.date(2026, 11, 30)


@pytest.fixture(scope="module")
def ci() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ci", ROOT / ".ci/ci.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ci"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def tracked_files() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no git checkout")
    return done.stdout.splitlines()


def test_each_file_has_a_row_and_each_row_has_files(ci: ModuleType) -> None:
    table = ci.read_table()
    files = tracked_files()

    assert [path for path in files if ci.find_row(path, table) is None] == []
    assert [row for row in table if not any(path.startswith(row) for path in files)] == []


def test_the_table_names_lanes_that_exist_and_each_lane_stands_in_it(ci: ModuleType) -> None:
    named = {lane for lanes in ci.read_table().values() for lane in lanes}

    assert named == {lane.name for lane in ci.LANES}


def test_a_change_runs_the_lanes_of_the_longest_row_and_one_by_the_date(ci: ModuleType) -> None:
    changed = ["launchpad/launch/devices/cpus.py", "README.md"]

    days = [MONDAY + datetime.timedelta(days=i) for i in range(len(ci.LANES) - 1)]
    chosen = [ci.choose_lanes(changed, day) for day in days]

    assert all(len(lanes) == 2 for lanes in chosen)
    assert all(lanes["ray"] == f"{changed[0]} changed" for lanes in chosen)
    assert {lane for lanes in chosen for lane in lanes} == {lane.name for lane in ci.LANES}


def test_each_lane_comes_first_on_some_day(ci: ModuleType) -> None:
    days = [MONDAY + datetime.timedelta(days=i) for i in range(len(ci.LANES))]

    orders = [ci.in_turn(ci.LANES, day) for day in days]

    assert {lanes[0].name for lanes in orders} == {lane.name for lane in ci.LANES}
    assert all(sorted(map(str, lanes)) == sorted(map(str, ci.LANES)) for lanes in orders)
    assert ci.in_turn([], MONDAY) == []


def test_a_change_of_documents_runs_no_further_lane(ci: ModuleType) -> None:
    assert ci.choose_lanes(["README.md", "docs/queues.md"], MONDAY) == {}


def test_a_file_that_no_row_fits_runs_all_lanes(ci: ModuleType) -> None:
    assert set(ci.choose_lanes(["new.file"], MONDAY)) == {lane.name for lane in ci.LANES}


# --- what becomes of a lane ----------------------------------------------------------------------

FAILS_ONCE = """
import pathlib

def test_fails_once():
    mark = pathlib.Path(__file__).with_suffix(".mark")
    has_failed = mark.exists()
    mark.touch()
    assert has_failed, "the first time"
"""
FAILS = "def test_fails(): assert False"
PASSES = "def test_passes(): pass"
CANNOT_BE_COLLECTED = "import a_module_that_is_not_there"


@pytest.fixture
def run_tests(ci: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a lane of these tests as CI does, and returns whether all is well."""
    monkeypatch.setattr(ci, "ROOT", tmp_path)
    (tmp_path / "conftest.py").write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom tests.run_recorder import *"
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # importing them takes a second
    command = f"{sys.executable} -m pytest -q -p no:cacheprovider --rootdir ."

    def run(*texts: str) -> bool:
        for number, text in enumerate(texts):
            (tmp_path / f"test_{number}.py").write_text(text)
        result = ci.run_lane(ci.Lane("these", f"{command} .", command))
        flaky = list(ci.try_again(result))
        ci.remember(flaky)
        return ci.report([result], flaky)

    return run


def test_a_test_that_fails_once_does_not_fail_ci_and_is_named_last(run_tests, tmp_path, capfd):
    assert run_tests(FAILS_ONCE, PASSES)

    printed = capfd.readouterr().out.splitlines()
    assert printed[-1] == "FLAKY: test_0.py::test_fails_once"
    assert any("the first time" in line for line in printed)
    assert "these test_0.py::test_fails_once" in (tmp_path / "build/flaky.txt").read_text()


@pytest.mark.parametrize("broken", [FAILS, CANNOT_BE_COLLECTED])
def test_a_test_that_always_fails_fails_ci(run_tests, broken, capfd) -> None:
    assert not run_tests(broken, PASSES)

    assert "test_0.py" in capfd.readouterr().out


def test_more_than_three_flaky_tests_fail_ci(run_tests, capfd) -> None:
    assert not run_tests(*[FAILS_ONCE] * 4)

    assert "4 tests are flaky, and 3 may be" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("exit 0", "passed"),
        ("exit 3", "cannot run here"),
        ("exit 1", "FAILED: exit status 1"),
        ("sleep 100", "FAILED: not done after 0.005 minutes"),
    ],
)
def test_a_lane_is_judged_by_its_exit_status(ci, command, verdict, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ci, "ROOT", tmp_path)

    result = ci.run_lane(ci.Lane("these", command, limit_min=0.005))

    assert result.verdict == verdict


def test_a_test_that_uses_too_much_processor_time_fails(run_tests, monkeypatch, capfd) -> None:
    busy = "import time\ndef test_busy():\n    while time.process_time() < 1.0: pass"
    limited = "import tests.run_recorder\ntests.run_recorder.MAX_CPU_S = 0.1\n"

    assert not run_tests(limited + busy)

    assert "make it cheaper, or mark it `endurance`" in capfd.readouterr().out


def test_each_rule_that_is_broken_on_purpose_still_has_its_line_and_its_tests() -> None:
    for rule in mutations.selected([]):
        missing = [path for path in rule.tests.split() if not (ROOT / path).exists()]
        assert missing == [], rule
