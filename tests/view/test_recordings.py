"""Charts, and two seconds of calls, in Chromium."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import launchpad as lp
from tests.cli.conftest import program_of
from tests.helpers.browsers import chromium
from tests.view import pages
from tests.waiting import until


@pytest.mark.slow
@pytest.mark.browser
def test_calls_are_drawn_and_saved_and_charts_show_their_number(tmp_path: Path) -> None:
    with (
        lp.launch(program_of("demo"), "local_mp") as running,
        pages.served(running.run_id) as url,
        chromium(tmp_path / "profile") as browser,
    ):
        browser.execute_cdp_cmd(
            "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
        )
        pages.open_page(browser, url)
        until(lambda: "memory" in pages.text_of(browser, "#charts"))
        shown = pages.text_of(browser, "#charts")
        assert all(title in shown for title in ("calls", "errors  0/s", "CPU", "MiB"))

        browser.find_element("link text", "time lines").click()
        until(lambda: "server-0" in pages.text_of(browser, "#attempts-line"))
        browser.find_element("css selector", "#record").click()
        until(lambda: pages.text_of(browser, "#calls-line"))
        titles = "return [...document.querySelectorAll('#calls-line i')].map(i => [i.className, i.title])"
        bars = browser.execute_script(titles)
        for look, title in (("call", "server-0/add"), ("answer", "add")):
            assert any(look == found and title in text for found, text in bars)
        assert "3 workers recorded" in pages.text_of(browser, "#told")

        browser.find_element("css selector", "#save").click()
        file = tmp_path / f"trace-{running.run_id}.json"
        until(file.exists)
        events = json.loads(file.read_text())["traceEvents"]
        assert sum(event["name"] == "server-0/add" for event in events) > 10
        assert pages.complaints(browser) == []
