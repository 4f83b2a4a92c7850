"""The pages of `launchpad view`, in Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import launchpad as lp
from tests.helpers.browsers import chromium
from tests.view import pages
from tests.waiting import until


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
def test_the_page_of_a_failed_run_names_the_first_cause_with_its_traceback(tmp_path: Path) -> None:
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
        until(lambda: re.search(r"3 calls", pages.text_of(browser, "#graph svg")))
        rows = until(lambda: {row[0]: row for row in pages.rows_of(browser, "workers")})
        assert "ValueError: <no room>" in rows["player-0"][-1]
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
