"""`launchpad top`, in a real terminal: tmux."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchpad.telemetry.edge_stats import Edges, EdgeStats
from launchpad.telemetry.program_metrics import Metrics
from launchpad.view.looks import Observer, counted
from tests.cli.conftest import Command
from tests.helpers import screens, scripts
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SCRIPT = """
import launchpad as lp

class Table:
    def write(self, number):
        pass

def play(table):
    number = 0
    while not lp.wait_for_stop(0.02):
        table.write(number)
        number += 1
        print(f"wrote {number}", flush=True)

program = lp.Program("demo")
table = program.add_node(lp.CourierNode(Table), label="table")
for label, n in (("player", 2), ("crowd", 9)):
    with program.group(label):
        for _ in range(n):
            program.add_node(lp.PyNode(play, table))
if __name__ == "__main__":
    lp.launch(program, "local_mp")
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    # A screen is narrow, and a path on it has to be short.
    with tempfile.TemporaryDirectory(prefix="lp-", dir="/tmp") as folder:
        monkeypatch.setenv("LAUNCHPAD_RUNTIME_DIR", f"{folder}/runs")
        monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        with (
            open(tmp_path / "printed", "w+") as printed,
            scripts.start(scripts.write(Path(folder), SCRIPT), stdout=printed) as process,
        ):
            until(lambda: "crowd-8" in (tmp_path / "printed").read_text())
            yield process
            process.terminate()


@pytest.mark.slow
def test_top_shows_a_program_and_does_what_its_keys_say(program: subprocess.Popen[str]) -> None:
    pytest.importorskip("textual")
    command = [sys.executable, "-m", "launchpad", "top", "--interval=0.2"]
    with screens.opened() as start:
        top = start(command, 120, 40, NO_COLOR="1")
        top.waits_for(r"12 running")
        assert all(map(is_gray, top.colors))
        top.press("q")
        until(lambda: not top.text.strip())
        assert program.poll() is None  # `top` ends alone

        top = start(command, 120, 40)
        shown = top.waits_for(r"^ player +table +write +[1-9]")
        assert "12 running" in shown
        assert re.search(r"▸ crowd ×9 +9 running", shown)
        assert "crowd-3" not in shown
        assert not all(map(is_gray, top.colors))

        top.press("Down", "Down")
        top.waits_for(r"^wrote \d+")
        top.press("t")
        top.waits_for(r"script\.py.* in play")
        top.press("r")
        top.waits_for("Restart player-0")
        top.press("y")
        top.waits_for(r"player-0 +running +2 .*restarted by")

        top.resize(70, 24)
        top.waits_for(r"^.{60,70}$")
        assert max(map(len, top.text.splitlines())) <= 70
        top.press("s")
        top.waits_for("Stop the program")
        top.press("y")
        top.waits_for("it has ended")
        assert program.wait(30) == 0
        top.press("q")
        until(lambda: not top.text.strip())


def is_gray(color: str) -> bool:
    """Of 256 colours these are black, white, and what lies between."""
    numbers = re.findall(r"(?:38|48);5;(\d+)", color)
    levels = re.findall(r"(?:38|48);2;(\d+);(\d+);(\d+)", color)
    return all(
        n in ("0", "7", "8", "15", "16", "231") or 232 <= int(n) <= 255 for n in numbers
    ) and all(len(set(each)) == 1 for each in levels)


def test_top_without_a_terminal_says_what_else_there_is(error_of: Command) -> None:
    pytest.importorskip("textual")

    assert "`top` needs a terminal; without one, see `launchpad ps RUN --json`" in error_of("top")


class Client:
    """Of a program in which three workers write to a table."""

    def status(self) -> list[dict[str, object]]:
        names = ["table-0", "player-0", "player-1", "slow-0"]
        rest = {"state": "running", "next_start": "", "attempt": 1, "cause": "", "log_path": ""}
        return [{"worker": name, "label": name[:-2], **rest} for name in names]

    def metrics(self, within_s: float) -> Metrics:
        calls = {"player-0": 6, "player-1": 8, "slow-0": 20}
        numbers = (1, 0, 0, 10, 20, 0.1, 0.1)
        rows = tuple(
            EdgeStats(name, "table-0", "write", n, n, *numbers, (n, *[0] * 47), True, 2.0)
            for name, n in calls.items()
        )
        return Metrics("demo", "demo-1", 2.0, 2.0, (), Edges(rows, (), 2.0))


class Failing(Client):
    """Of a program whose causes and methods are no markup, and do nothing to a terminal."""

    def status(self) -> list[dict[str, object]]:
        cause = "KeyError: '[/red][bold]' \x1b[2J"
        return [{**row, "cause": cause} for row in super().status()]


def test_top_shows_causes_as_they_are_and_no_control_characters() -> None:
    pytest.importorskip("textual")
    from textual.widgets import DataTable

    from launchpad.view.terminal import Top

    async def look() -> str:
        top = Top(Failing(), "demo", 0.1, 1.0)
        async with top.run_test(size=(160, 40)) as pilot:
            table = top.query_one("#workers", DataTable)
            while not table.row_count:
                await pilot.pause(0.01)
            await pilot.pause()
            return str(table.get_row_at(0)[-1])

    assert asyncio.run(look()) == r"KeyError: '[/red][bold]' \x1b[2J"


def test_what_goes_between_workers_of_two_groups_is_one_row() -> None:
    look = Observer(Client(), 1.0).look()

    assert [(f.caller, f.server, f.calls, f.calls_per_s, f.errors) for f in look.flows] == [
        ("slow", "table", 20, 10.0, 1),
        ("player", "table", 14, 7.0, 2),
    ]
    assert counted(look.groups["player"]) == "2 running"
