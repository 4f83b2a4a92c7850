"""`launchpad view` as a process of its own, and Chromium, which shows its pages."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = """headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking
disable-component-update disable-sync window-size=1280,900""".split()
DEADLINE_S = 30.0


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[str]:
    """The address that `launchpad view` prints, while it runs."""
    pytest.importorskip("nicegui")
    command = [sys.executable, "-m", "launchpad", "view", *arguments]
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


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by selenium."""
    webdriver = pytest.importorskip("selenium.webdriver")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"user-data-dir={profile}"):
            options.add_argument(f"--{flag}")
        with webdriver.Chrome(options, webdriver.ChromeService(driver)) as chrome:
            yield chrome


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


def press(browser: Any, selector: str) -> None:
    """A press of the mouse on an element, and a click; both at once, as it may be drawn anew between two."""
    script = """
    const e = document.querySelector(arguments[0]);
    e.dispatchEvent(new MouseEvent('mousedown', {bubbles: true}));
    e.click();
    """
    browser.execute_script(script, selector)


def screenshot(browser: Any, path: Path) -> None:
    """For those that look at it."""
    threading.Event().wait(1.0)  # nothing signals that it is drawn
    browser.save_screenshot(str(path))
