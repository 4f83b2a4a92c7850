"""What a page of `launchpad view` may change: nothing, or with `--control` the program and its workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from tests.helpers.browsers import chromium
from tests.view import pages
from tests.waiting import until

HELD_BACK = """
window.sent = [];
const emit = window.socket.emit.bind(window.socket);
window.socket.emit = (name, ...m) => name == "event" ? window.sent.push(m[0]) : emit(name, ...m);
"""
"""From now on what is clicked is not sent to the server, but kept."""

FORGED = """
const all = document.getElementById("app")._vnode.component.proxy.elements;
const own = Object.entries(all).flatMap(([id, e]) => (e.events || []).map(
    event => ({id: Number(id), listener_id: event.listener_id, args: ['"x"']})));
const sent = [...arguments[0], ...own];
sent.forEach(m => window.socket.emit("event", {...m, client_id: window.clientId}));
return sent.length;
"""
"""Sends to the server of this page what another page would have sent, and whatever this one can send."""


def player() -> None:
    lp.wait_for_stop()


def demo() -> lp.Program:
    program = lp.Program("demo")
    with program.group("player"):
        for _ in range(2):
            program.add_node(lp.PyNode(player))
    return program


def page_of(browser: Any, url: str, run_id: str, *parts: str) -> None:
    """Opens a page; the first one by the address with the token."""
    if not browser.current_url.startswith(url.partition("/open")[0]):
        pages.open_page(browser, url)
    pages.open_page(browser, "/".join([url.partition("/open")[0], "run", run_id, *parts]))
    until(lambda: "running" in pages.text_of(browser, "#state"))


def shown(browser: Any, selector: str) -> Any:
    """An element, once it is to be seen and has come to rest: a click on one that moves may miss it."""
    found = until(lambda: browser.find_elements("css selector", selector))
    until(found[0].is_displayed)
    until(lambda: browser.execute_script("return document.getAnimations().length") == 0)
    return found[0]


@pytest.mark.slow
@pytest.mark.browser
def test_with_control_buttons_restart_a_worker_and_stop_the_program(tmp_path: Path) -> None:
    with (
        lp.launch(demo(), "local_mp") as running,
        pages.served("--control", running.run_id) as url,
        chromium(tmp_path) as browser,
    ):
        page_of(browser, url, running.run_id, "worker", "player-1")
        shown(browser, "#restart").click()
        until(lambda: "running, attempt 2" in pages.text_of(browser, "#state"))

        page_of(browser, url, running.run_id)
        shown(browser, "#stop").click()
        shown(browser, "#stop-now").click()
        running.wait(60)
        until(lambda: "it has ended" in pages.text_of(browser, "#state"))
        until(lambda: not browser.find_element("css selector", "#stop").is_displayed())
        assert pages.complaints(browser) == []


@pytest.mark.slow
@pytest.mark.browser
def test_without_control_what_a_page_with_control_sends_does_nothing(tmp_path: Path) -> None:
    with lp.launch(demo(), "local_mp") as running, chromium(tmp_path) as browser:
        forged = []
        with pages.served("--control", running.run_id) as url:
            page_of(browser, url, running.run_id, "worker", "player-1")
            browser.execute_script(HELD_BACK)
            shown(browser, "#restart").click()
            forged += browser.execute_script("return window.sent")
            page_of(browser, url, running.run_id)
            shown(browser, "#stop").click()
            shown(browser, "#stop-now")
            browser.execute_script(HELD_BACK)
            shown(browser, "#stop-now").click()
            forged += browser.execute_script("return window.sent")
        assert len(forged) == 2

        with pages.served(running.run_id) as url:
            for page in ((), ("worker", "player-1")):
                page_of(browser, url, running.run_id, *page)
                assert not browser.find_elements("css selector", "#stop, #restart, #stop-now")
                assert browser.execute_script(FORGED, forged) > len(forged)
            until(lambda: "in player" in pages.text_of(browser, "#stacks"))  # it has done the rest

        history = running.history()
        assert [(each.worker, each.ended) for each in history.attempts] == [
            ("player-0", None),
            ("player-1", None),
        ]
