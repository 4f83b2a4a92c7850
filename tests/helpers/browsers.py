"""Debian's Chromium, without a screen, for pages on this host."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_FLAGS = """headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking
disable-component-update disable-sync window-size=1280,900""".split()
# Of any other host it learns at once that there is none.
_ONLY_THIS_HOST = "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser that has just started, driven by selenium; its profile lies in this folder.

    The test is skipped where there is no Chromium.
    """
    webdriver = pytest.importorskip("selenium.webdriver")
    browser = shutil.which("chromium")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in [*_FLAGS, _ONLY_THIS_HOST, f"user-data-dir={profile}"]:
        options.add_argument(f"--{flag}")
    with webdriver.Chrome(options, webdriver.ChromeService(driver)) as started:
        yield started
