"""The page of `launchpad view`, as it shows a run whose workers are here, and one whose workers are pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from tests import nodes
from tests.helpers import endless_printer
from tests.helpers.browsers import chromium
from tests.view import pages
from tests.waiting import until


def calls_in(browser: Any) -> int:
    """How many calls the page shows, of those from talkers to the server."""
    rows = pages.rows_of(browser, "edges")
    return sum(int(row[3].replace(",", "")) for row in rows if row[:2] == ["talker", "server"])


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("launch_type", ["test_mp", "test_kubernetes"])
def test_the_page_shows_workers_edges_restarts_and_logs(launch_type: str, tmp_path: Path) -> None:
    program = lp.Program("shown")
    server = program.add_node(lp.CourierNode(nodes.Counter), label="server")
    with program.group("talker"):
        for number in range(2):
            program.add_node(lp.PyNode(endless_printer.talk, server, number))
    with (
        lp.launch(program, launch_type) as running,
        pages.served(running.run_id) as url,
        chromium(tmp_path / "profile") as browser,
    ):
        pages.open_page(browser, url)
        until(lambda: calls_in(browser) > 10)
        shown = calls_in(browser)
        assert shown <= running.edges().total(caller="talker", server="server").calls
        pages.press(browser, "#workers [data-key='group:talker']")
        until(lambda: len(pages.rows_of(browser, "workers")) == 4)

        running.restart("talker-1")
        until(
            lambda: [r[2] for r in pages.rows_of(browser, "workers") if r[0] == "talker-1"] == ["2"]
        )

        pages.press(browser, "#workers a[href$='/talker-1']")
        until(lambda: len(pages.rows_of(browser, "attempts")) == 2)
        until(lambda: pages.text_of(browser, "#log").strip())
        assert pages.complaints(browser) == []
