"""Run the checks and the lanes of tests that CI needs for what has changed, then report.

    .ci/run           lint, types, docs, wheel and `make test`; each lane that a changed file calls for by
                      the table .ci/lanes; and if code changed, one of the other lanes, chosen by the date.
                      No lane begins after 25 minutes. Which ones come first, the date decides
    .ci/run --all     every lane, however long that takes, and no second try for a test that fails:
                      `make test-all`
    .ci/run --list    say what would run, and why

Changed is what the commits since .ci/last_landing touch: that file names the commit that was landed last.
A lane that fails doesn't end the run. A test that fails is run again, once and by itself: if it passes then,
it is flaky. CI reports it at the end, appends it to build/flaky.txt and passes all the same, unless more
than three tests are flaky.

Exit status: 0 if all is well, 1 if not.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import run_record  # noqa: E402

BEGINS_WITHIN_MIN = 25.0
"""After this time no further lane begins, so that a landing takes half an hour."""

MAX_FLAKY = 3
MAX_SECOND_TRIES = 8
"""If more tests of a lane fail, something is broken, and a second try would tell nothing."""

CANNOT_RUN_HERE = 3
"""The exit status of a lane that this machine isn't fit for; it has said why."""

_FAILED_OR_NOTHING_TO_RUN = {0, 1, 5}
"""The exit statuses of a pytest that ran to its end."""


@dataclass(frozen=True)
class Lane:
    """A command, and how to run one test of it alone; without `pytest` it has no tests."""

    name: str
    command: str
    pytest: str = ""
    env: dict[str, str] = field(default_factory=dict)
    limit_min: float = 25.0


PYTEST = ".venv/bin/python -m pytest"
PYTHON_314 = "build/python3.14/venv/bin/python"

CHECKS = [
    Lane("lint", "make lint"),
    Lane("types", "make types"),
    Lane("docs", "make docs"),
    Lane("wheel", ".ci/check_wheel"),
    Lane("test", "make test", PYTEST),
]
"""These always run."""

OTHER_TRANSPORTS = {"LP_TRANSPORTS": "inproc,tcp,tls"}

LANES = [
    # What the examples need is tried on Kubernetes, where all of them run.
    Lane("ray", "make test-ray PYTEST_ARGS=--ignore=tests/examples", PYTEST),
    Lane("kubernetes", ".ci/on_a_cluster", ".ci/on_a_cluster", limit_min=40),
    Lane("hosts", ".ci/on_hosts", ".ci/on_hosts"),
    Lane("spark", "make test-spark", PYTEST),
    Lane(
        "python3.14", ".ci/python3.14", f".ci/python3.14 {PYTHON_314} -m pytest", OTHER_TRANSPORTS
    ),
    Lane("torch", "make test-torch", PYTEST),
    Lane("carry-over", "make test-carry-over", ".venv-reverb/bin/python -m pytest"),
    Lane("transports", "make test-transports", PYTEST, OTHER_TRANSPORTS),
    Lane("browser", "make test-browser", PYTEST),
    Lane("endurance", "make test-endurance", PYTEST),
]
"""These run if what they test has changed, and each of them now and then."""


@dataclass
class Result:
    """The end of a lane. `failed` has the tests that failed, or one line if it was no test that failed."""

    lane: Lane
    seconds: float
    verdict: str
    failed: list[run_record.TestRow] = field(default_factory=list)


@dataclass
class FlakyTest:
    """A test that failed beside the others and passed alone."""

    lane: Lane
    first: run_record.TestRow
    second_output: str


def read_table() -> dict[str, list[str]]:
    """Return the table .ci/lanes: the beginning of a path → the lanes that its change calls for."""
    table = {}
    for line in (ROOT / ".ci/lanes").read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            table[words[0]] = [word for word in words[1:] if word != "-"]
    return table


def find_row(path: str, table: Iterable[str]) -> str | None:
    """Return the row of the table for a file, the one that says most of its path."""
    rows = [beginning for beginning in table if path.startswith(beginning)]
    return max(rows, key=len, default=None)


def choose_lanes(changed: Collection[str], day: datetime.date) -> dict[str, str]:
    """Return the names of the lanes to run for these files, each with the reason."""
    table = read_table()
    reasons: dict[str, str] = {}
    for path in sorted(changed):
        row = find_row(path, table)
        lanes = [lane.name for lane in LANES] if row is None else table[row]
        for name in lanes:
            reasons.setdefault(name, f"{path} changed")
    others = [lane.name for lane in LANES if lane.name not in reasons]
    is_code = any(path.startswith(("launchpad/", "courier/")) for path in changed)
    if is_code and others:
        reasons[others[day.toordinal() % len(others)]] = "its turn by the date"
    return reasons


def in_turn(lanes: list[Lane], day: datetime.date) -> list[Lane]:
    """Return the lanes in an order in which each comes first on some day, as the last ones may not be run."""
    first = day.toordinal() % len(lanes) if lanes else 0
    return lanes[first:] + lanes[:first]


def changed_files() -> list[str] | None:
    """Return the files that the commits since the last landing touch; None if git can't say."""
    landed = (ROOT / ".ci/last_landing").read_text().split()[0]
    command = ["git", "diff", "--name-only", "--no-renames", landed, "HEAD"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.splitlines()


def run(command: str, env: dict[str, str], limit_s: float) -> int | None:
    """Run a shell command and return its exit status; None if it was ended at its limit."""
    process = subprocess.Popen(
        command, shell=True, cwd=ROOT, env={**os.environ, **env}, start_new_session=True
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return None


def run_lane(lane: Lane) -> Result:
    """Run a lane to its end."""
    print(f"\n== {lane.name}: {lane.command}", flush=True)
    record = ROOT / "build/ci" / f"{lane.name}.jsonl"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    began = time.monotonic()
    status = run(
        lane.command, {**lane.env, run_record.PATH_VARIABLE: str(record)}, lane.limit_min * 60
    )
    seconds = time.monotonic() - began

    if status == 0:
        return Result(lane, seconds, "passed")
    if status == CANNOT_RUN_HERE:
        return Result(lane, seconds, "cannot run here")
    if status is None:
        return Result(lane, seconds, f"FAILED: not done after {lane.limit_min:g} minutes")
    tests, sessions = run_record.read(record) if record.exists() else ([], [])
    failed = [row for row in tests if row.outcome in ("failed", "not collected")]
    ran_to_its_end = bool(sessions) and _FAILED_OR_NOTHING_TO_RUN.issuperset(sessions)
    if not failed or not ran_to_its_end:
        return Result(lane, seconds, f"FAILED: exit status {status}")
    return Result(lane, seconds, "FAILED", failed)


def try_again(result: Result) -> Iterator[FlakyTest]:
    """Run each failed test of a lane by itself; yield those that pass, and take them off the list."""
    is_collected = all(row.outcome != "not collected" for row in result.failed)
    if not is_collected or not 0 < len(result.failed) <= MAX_SECOND_TRIES:
        return
    for row in list(result.failed):
        print(f"\n== again, by itself: {row.test}", flush=True)
        log = ROOT / "build/ci/second_try.log"
        command = f"{result.lane.pytest} '{row.test}' > {log} 2>&1"
        status = run(command, result.lane.env, limit_s=600.0)
        output = log.read_text(errors="replace")
        print(output, flush=True)
        if status == 0:
            result.failed.remove(row)
            yield FlakyTest(result.lane, row, output)
    if not result.failed:
        result.verdict = "passed, with flaky tests"


def report(results: list[Result], flaky: list[FlakyTest]) -> bool:
    """Print what came of each lane, and last the flaky tests; return True if all is well."""
    print("\n== lanes")
    for result in results:
        print(f"{result.lane.name:12} {result.seconds:6.0f} s  {result.verdict}")
        for row in result.failed:
            print(f"{'':22}{row.test}")
    print(f"{'all':12} {sum(result.seconds for result in results):6.0f} s")

    for test in flaky:
        print(f"\n-- {test.first.test} failed in the lane {test.lane.name}:")
        print(test.first.failure.strip())
        print("-- and passed by itself:")
        print(test.second_output.strip())
    if len(flaky) > MAX_FLAKY:
        print(f"\nFAILED: {len(flaky)} tests are flaky, and {MAX_FLAKY} may be")
    for test in flaky:
        print(f"FLAKY: {test.first.test}")
    is_red = any(result.verdict.startswith("FAILED") for result in results)
    return not is_red and len(flaky) <= MAX_FLAKY


def remember(flaky: list[FlakyTest]) -> None:
    """Append flaky tests to build/flaky.txt."""
    with (ROOT / "build/flaky.txt").open("a") as file:
        for test in flaky:
            file.write(
                f"{datetime.datetime.now():%Y-%m-%d %H:%M} {test.lane.name} {test.first.test}\n"
            )


def install_chromium() -> None:
    """Install a browser if that is possible; tests of pages are skipped without one."""
    if shutil.which("chromedriver") is None and os.geteuid() == 0:
        packages = "chromium chromium-driver"
        run(
            f"apt-get update -q && apt-get install -qy --no-install-recommends {packages}",
            {},
            600.0,
        )


def main() -> int:
    """Run, report, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="run every lane, try no test again")
    parser.add_argument("--list", action="store_true", help="say what would run")
    options = parser.parse_args()

    today = datetime.date.today()
    changed = None if options.all else changed_files()
    if changed is None:
        reason = "--all" if options.all else "git doesn't say what has changed"
        reasons = {lane.name: reason for lane in LANES}
    else:
        reasons = choose_lanes(changed, today)
    lanes = CHECKS + in_turn([lane for lane in LANES if lane.name in reasons], today)
    for lane in lanes:
        print(f"{lane.name:12} {reasons.get(lane.name, 'always')}", flush=True)
    if options.list:
        return 0

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # tests start thousands of interpreters
    install_chromium()
    results: list[Result] = []
    flaky: list[FlakyTest] = []
    began = time.monotonic()
    for lane in lanes:
        minutes = (time.monotonic() - began) / 60
        if minutes > BEGINS_WITHIN_MIN and not options.all:
            results.append(Result(lane, 0.0, f"not run: {minutes:.0f} minutes had passed"))
            continue
        result = run_lane(lane)
        results.append(result)
        if result.failed and not options.all:
            flaky += try_again(result)
    remember(flaky)
    return 0 if report(results, flaky) else 1


if __name__ == "__main__":
    sys.exit(main())
