"""The picture of `launchpad view` in the README: examples/ps with a worker that was killed.

python -m docs.site.view_picture        writes docs/images/view_restart.png; needs Chromium
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import launchpad as lp
from examples._shared.problem import Problem
from examples.ps.program import make_program
from tests.helpers.browsers import chromium
from tests.view import pages
from tests.waiting import pid_of, until

PICTURE = Path(__file__).parents[1] / "images/view_restart.png"
SIZE = (1000, 900)
WATCHED_S = 6.0
"""The charts need some seconds of data."""


def main() -> None:
    """Launch the program, kill a worker, and take the picture when it runs again."""
    program = make_program(Problem(workers=4, steps=10**7), "async")
    with (
        tempfile.TemporaryDirectory() as profile,
        lp.launch(
            program, "local_mp", restart=lp.RestartPolicy(), terminal="output_to_files"
        ) as running,
        pages.served(running.run_id) as url,
        chromium(Path(profile)) as browser,
    ):
        browser.set_window_size(*SIZE)
        pages.open_page(browser, url)
        until(lambda: " calls" in pages.text_of(browser, "#graph svg"))
        pages.press(browser, "#workers [data-key='group:worker']")
        os.kill(pid_of(running, "worker-1"), signal.SIGKILL)
        until(lambda: any(row[2] == "2" for row in pages.rows_of(browser, "workers")))
        time.sleep(WATCHED_S)
        browser.save_screenshot(str(PICTURE))


if __name__ == "__main__":
    main()
