"""`launchpad view` as a process of its own, and what a browser shows of its pages."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def served(*arguments: str, open_files: int = 1024) -> Iterator[str]:
    """The address that `launchpad view` prints, while it runs with this limit on open files."""
    pytest.importorskip("nicegui")
    limited = ["bash", "-c", f'ulimit -n {open_files} && exec "$@"', "bash"]
    command = [*limited, sys.executable, "-m", "launchpad", "view", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
    assert process.returncode in (0, 130), rest


def text_of(browser: Any, selector: str) -> str:
    """What an element shows now; empty where it is not there."""
    script = "const e = document.querySelector(arguments[0]); return e ? e.textContent : ''"
    return str(browser.execute_script(script, selector))


def rows_of(browser: Any, table: str) -> list[list[str]]:
    """The cells of a table."""
    script = (
        "return [...document.querySelectorAll('#' + arguments[0] + ' tbody tr')]"
        ".map(r => [...r.children].map(c => c.textContent.trim()))"
    )
    rows: list[list[str]] = browser.execute_script(script, table)
    return rows


_NETWORK = "ERR_NETWORK_CHANGED"
"""Chromium gives up what it is loading when any network of this host comes or goes, as in other tests."""


def open_page(browser: Any, url: str) -> None:
    """Opens a page, with all that belongs to it."""
    browser.get(url)
    while any(_NETWORK in each["message"] for each in browser.get_log("browser")):
        browser.refresh()


def complaints(browser: Any) -> list[str]:
    """What a browser says of the pages that it has shown, since it was asked before."""
    messages = (each["message"] for each in browser.get_log("browser"))
    return [message for message in messages if _NETWORK not in message]


def press(browser: Any, selector: str) -> None:
    """A press of the mouse on an element, and a click; both at once, as it may be drawn anew between two."""
    script = """
    const e = document.querySelector(arguments[0]);
    e.dispatchEvent(new MouseEvent('mousedown', {bubbles: true}));
    e.click();
    """
    browser.execute_script(script, selector)
