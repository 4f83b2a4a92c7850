"""Each benchmark says how it is run, and prints or writes what it found. Its figures are not looked at."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.calls.bars import BARS
from benchmarks.harness import bars
from benchmarks.harness.command_line import Parser
from benchmarks.harness.figures import in_turns
from tests.helpers import scripts

ROOT = Path(__file__).parent.parent.parent
SECOND_HARNESS = re.compile(
    r"ArgumentParser\(|json\.dumps\(|sys\.path\.insert\(|XDG_RUNTIME_DIR"
    r"|\"local_mp\", .*output_to_files\"\) as|max_restarts=10\*\*9"
)
PEER = re.compile(r"^\s*(?:import|from) (ray|grpc|zmq|uvloop|reverb|monarch)\b", re.MULTILINE)
DEADLINE_S = 540  # rpc computes for half a minute, and others may use the machine
SCRIPTS = sorted(path.name for path in (ROOT / "benchmarks").glob("[!_]*.py"))
REPORTING = "rpc soak launch recovery logs orphans ctrl_c scale cycles simulation".split()
PRINTING = {
    "saves.py --kills=5 --resumes=2": "resumed ",
    "pool.py --quick": "all results, in order: yes; twice: 0",
    "collectives.py --quick": "data that two ranks swap",
    "edges.py --workers=3 --calls=3000 --samples=3": "3,000 calls on 6 edges",
    "queues.py --quick": "0 of these unnoticed",
    "replay.py --quick": "batches sampled",
    "heartbeats.py --beats=20": "false alarms",
    "preload.py --module=json --workers=2 --rounds=1": "multiprocessing, forkserver ",
    "large_constants.py --mb=64 --workers=2": "when it has written half  ",
}
QUICKEST = (
    "launch",
    "preload.py --module=json --workers=2 --rounds=1",
    "large_constants.py --mb=64 --workers=2",
)


def at_length(cases: Iterable[str]) -> list[Any]:
    """All are endurance but the quickest."""
    return [
        pytest.param(case, marks=[] if case in QUICKEST else [pytest.mark.endurance])
        for case in cases
    ]


def run(*command: str, ok: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=scripts.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode in ok, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


def report_of(script: str, results: Path) -> dict[str, Any]:
    """What the script has written, run once and quickly."""
    path = results / f"{script}.json"
    if not path.exists():
        # Those that judge end with 1 when a trial was slow, as it may be here.
        printed = run(f"benchmarks/{script}.py", "--quick", "--json", str(path), ok=(0, 1))
        assert path.exists(), printed
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_says_how_it_is_run(script: str) -> None:
    assert "usage: " in run(f"benchmarks/{script}", "--help")


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 60)
@pytest.mark.parametrize("script", at_length(REPORTING))
def test_a_script_runs_quickly_and_writes_where_it_was_measured(script: str, results: Path) -> None:
    report = report_of(script, results)

    assert report["machine"]["date"]
    assert report["machine"]["cpu"]
    assert len(report) > 1


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 60)
@pytest.mark.parametrize("command", at_length(PRINTING))
def test_a_script_prints_what_it_finds(command: str) -> None:
    script, *options = command.split()

    assert PRINTING[command] in run(f"benchmarks/{script}", *options, ok=(0, 1))


@pytest.mark.ray
@pytest.mark.slow
def test_courier_is_measured_beside_ray_on_ray(results: Path) -> None:
    pytest.importorskip("ray")
    path = results / "on_ray.json"

    run("benchmarks/rpc.py", "--backend=ray", "--quick", "--json", str(path))

    measured = json.loads(path.read_text())["on_ray"]
    assert measured["times_lower_latency"]["median"] > 0
    assert measured["times_more_calls"]["median"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("pods_run_this")
def test_answers_and_stops_are_measured_on_kubernetes(tmp_path: Path) -> None:
    path = tmp_path / "cycles.json"
    options = "--launch-types=test_kubernetes", "--nodes=8", "--cycles=1", f"--json={path}"

    printed = run("benchmarks/cycles.py", *options, ok=(0, 1))

    found = json.loads(path.read_text())["cycles"]["test_kubernetes"]
    assert found["answer_s"]["median"] > 0
    assert found["stop_s"]["median"] > 0
    assert "nothing is left" in printed


@pytest.mark.slow
@pytest.mark.kubernetes  # it starts an API server itself
@pytest.mark.timeout(DEADLINE_S + 60)
def test_a_launcher_of_many_pods_is_measured_and_survives_an_api_server(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"

    printed = run("benchmarks/pods.py", "--quick", f"--json={path}", ok=(0, 1, 3))
    if "no Kubernetes cluster here" in printed:
        pytest.skip(printed)

    measured = json.loads(path.read_text())["pods"]
    assert 2 <= measured["10"]["requests_per_pod"] <= 8
    assert measured["20"]["outage"]["n_ended"] == 0


@pytest.mark.slow
@pytest.mark.endurance
@pytest.mark.timeout(DEADLINE_S + 60)
def test_every_figure_that_a_promise_is_about_is_in_the_reports_or_its_contender_is_missing(
    results: Path,
) -> None:
    report = report_of("rpc", results) | {"soak": report_of("soak", results)["soak"]}
    missing = report_of("rpc", results)["missing"]

    # Quick runs leave the largest arrays out.
    ours = [bar for bar in BARS if not bar.figure.startswith("on_ray/")]
    absent = {bar.figure for bar in ours if bar.figure_in(report) is None}
    assert {
        figure
        for figure in absent
        if not figure.endswith(("/16 MB", "/256 MB")) and figure.split("/")[-2] not in missing
    } == set()


@pytest.mark.slow
@pytest.mark.endurance
@pytest.mark.timeout(DEADLINE_S + 60)
def test_the_plot_is_drawn_from_a_report(results: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report_of("rpc", results)
    picture = tmp_path / "calls.svg"

    run("benchmarks/plot.py", "--json", str(results / "rpc.json"), "--to", str(picture))

    assert "courier" in picture.read_text()


def test_options_reports_and_environments_have_one_home() -> None:
    # plot.py writes no report; the peers run in interpreters that have no harness.
    files = [
        path
        for path in (ROOT / "benchmarks").rglob("*.py")
        if path.parent.name not in ("harness", "peers") and path.name != "plot.py"
    ]

    second = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        for line in path.read_text().splitlines()
        if SECOND_HARNESS.search(line)
    ]

    assert second == []


def test_the_code_of_a_peer_stands_in_one_file() -> None:
    homes: dict[str, set[str]] = {}
    for path in (ROOT / "benchmarks").rglob("*.py"):
        for peer in PEER.findall(path.read_text()):
            homes.setdefault(peer, set()).add(path.name)

    assert {peer: files for peer, files in homes.items() if len(files) > 1} == {}
    assert homes["ray"] == {"ray_actors.py"}


def test_all_take_turns_and_the_order_turns_around() -> None:
    order: list[str] = []
    contenders = {name: lambda name=name: order.append(name) for name in "ab"}

    found = in_turns(contenders, rounds=2, warm_up=1)

    assert order == ["b", "a", "a", "b", "b", "a"]
    assert {name: len(figures) for name, figures in found.items()} == {"a": 2, "b": 2}


def test_options_have_the_types_of_their_defaults_and_quick_sets_some() -> None:
    parser = Parser("Does things.", {"kills": 1}, kills=300, within_s=1.0, sizes=[1, 2], only=False)

    slow = parser.parse_args(["--within-s=2", "--sizes", "3,4", "--only"])
    quick = parser.parse_args(["--quick"])

    assert (slow.kills, slow.within_s, slow.sizes, slow.only) == (300, 2.0, [3, 4], True)
    assert (quick.kills, quick.within_s, quick.sizes, quick.only) == (1, 1.0, [1, 2], False)


def test_a_promise_that_does_not_hold_is_shown_as_such() -> None:
    slow = {"pipelined": {"two cores": {"courier": {"to_uvloop": {"median": 0.5}}}}}

    shown = [bar.line(slow) for bar in bars.about(slow, BARS)]

    verdicts = [line.rsplit(maxsplit=1)[-1] for line in shown]
    assert sorted(verdicts) == ["NO", "measured", "measured", "measured"]
    assert len(bars.misses(slow, BARS)) == 4
