"""Step 6 of the tutorial: a screen of `launchpad top`, which no command without a terminal prints."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.helpers import screens, scripts
from tests.waiting import until

SCRIPT = ROOT / "docs/snippets/tutorial/step5_checkpoint.py"
MARKER = "run by: tests/docs/test_tutorial.py"


@pytest.mark.slow
def test_top_shows_the_program_as_the_tutorial_does_and_a_stop_saves_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("textual")
    monkeypatch.setenv("LAUNCHPAD_LOGGING_DIR", str(tmp_path / "logs"))
    (block,) = (block for block in blocks("console") if block.marker == MARKER)
    _, *shown = block.text.splitlines()
    command = [sys.executable, str(SCRIPT), "--lp_launch_type=local_mp"]
    launchpad = [sys.executable, "-m", "launchpad"]

    with scripts.started() as start_script, screens.opened() as start_terminal:
        # The workers compute as fast as they can, and would slow down the start of `top`.
        on_one_core = ["taskset", "-c", str(min(os.sched_getaffinity(0))), "nice", "-n", "19"]
        script = start_script([*on_one_core, *command], "--steps=300000", cwd=tmp_path)
        until(lambda: [*tmp_path.glob("logs/*/worker-2.log")])
        top = start_terminal([*launchpad, "top", "--interval=0.3"], 84, 30)
        screen = top.waits_for(r"^ worker +server +push +[1-9][\s\S]+q quit").splitlines()
        script.send_signal(signal.SIGINT)
        script.wait(30)
    again = scripts.run(command, "--steps=10", cwd=tmp_path)

    missing = [row for row in shown if not any(begins_alike(row, each) for each in screen)]
    assert missing == [], "\n".join(screen)
    assert re.search(r"^server-0 +\| continues after [\d,]+ updates$", again.stdout, re.M)


def begins_alike(shown: str, row: str) -> bool:
    """True if a row of the screen begins with the words that the page shows."""
    expected = words(shown)
    return words(row)[: len(expected)] == expected


def words(row: str) -> list[str]:
    """A row of a screen without its numbers, their units, and the run's id."""
    without_run = re.sub(r"digits-[\w-]+", "RUN", row)
    return re.sub(r"[\d.,]+( ?(%|µs|ms|s|[KM]iB|B)(?!\w))?", "", without_run).split()
