"""The pages of `launchpad view`, in Chromium."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from tests import nodes
from tests.helpers import endless_printer
from tests.helpers.browsers import chromium
from tests.view import pages
from tests.waiting import pid_of, until


def calls_in(browser: Any) -> dict[tuple[str, ...], int]:
    """Caller, server and method → how many calls the page shows."""
    rows = pages.rows_of(browser, "edges")
    return {tuple(row[:3]): int(row[3].replace(",", "")) for row in rows}


@pytest.mark.slow
@pytest.mark.browser
def test_edges_have_the_numbers_of_running_edges_and_a_killed_worker_is_at_attempt_2(
    tmp_path: Path,
) -> None:
    program = lp.Program("demo")
    server = program.add_node(lp.CourierNode(nodes.Counter), label="server")
    with program.group("talker", restart=lp.RestartPolicy()):
        for number in range(2):
            program.add_node(lp.PyNode(endless_printer.talk, server, number))
    with (
        lp.launch(program, "test_mp") as running,
        pages.served(running.run_id) as url,
        chromium(tmp_path / "profile") as browser,
    ):
        pages.open_page(browser, url)
        until(lambda: re.search(r"\d calls", pages.text_of(browser, "#graph svg")))
        pages.press(browser, "#workers [data-key='group:talker']")
        until(lambda: len(pages.rows_of(browser, "workers")) == 4)

        before = running.edges().total().calls
        shown = calls_in(browser)
        for _ in range(2):  # what is shown then was counted later than `before`
            until(lambda seen=shown: calls_in(browser) != seen)
            shown = calls_in(browser)
        assert shown.keys() == {("talker", "server", "add")}
        assert before <= shown["talker", "server", "add"] <= running.edges().total().calls

        os.kill(pid_of(running, "talker-1"), signal.SIGKILL)
        row = until(lambda: next((r for r in pages.rows_of(browser, "workers") if r[2] == "2"), []))
        assert row[0] == "talker-1"
        assert "SIGKILL" in row[-1]
        assert pages.complaints(browser) == []


class Table:
    """It fails at the third call."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, row: str) -> None:
        self.rows += 1
        if self.rows == 3:
            raise ValueError(f"<no room> for {row}")


def play(table: lp.CourierClient[Table]) -> None:
    for number in range(10):
        print(f"row {number}", flush=True)
        table.write(f"row {number}")


@pytest.mark.slow
def test_the_page_of_a_run_that_has_failed_names_the_first_cause_with_its_traceback(
    tmp_path: Path,
) -> None:
    program = lp.Program("demo")
    table = program.add_node(lp.CourierNode(Table), label="table")
    program.add_node(lp.PyNode(play, table), label="player")
    running = lp.launch(program, "local_mp")
    with pytest.raises(lp.ProgramFailed):
        running.wait()

    with pages.served() as url, chromium(tmp_path / "profile") as browser:
        pages.open_page(browser, url)
        until(lambda: pages.rows_of(browser, "runs"))
        pages.press(browser, f"a[href$='{running.run_id}']")
        until(lambda: "failed" in pages.text_of(browser, "#state"))
        (edge,) = pages.rows_of(browser, "edges")
        assert (edge[:4], edge[8]) == (["player", "table", "write", "3"], "1")
        pages.press(browser, "a[href$='/failure']")

        cause = until(lambda: pages.text_of(browser, "#lines") and pages.text_of(browser, "#cause"))
        assert "player-0 failed in run (attempt 1): ValueError: <no room> for row 2" in cause
        traceback = pages.text_of(browser, "#traceback")
        assert "in write" in traceback
        assert "in play" in traceback

        pages.press(browser, "a[href$='/player-0']")
        until(lambda: "row 2" in pages.text_of(browser, "#log"))
        (attempt,) = pages.rows_of(browser, "attempts")
        assert attempt[4:6] == ["failed", "ValueError: <no room> for row 2"]
        browser.find_element("css selector", "input[placeholder='search']").send_keys("row 1")
        until(lambda: pages.text_of(browser, "#log").strip() == "row 1")
        assert pages.complaints(browser) == []
