"""The process that shows a program in the browser beside its script, for `--lp_view`.

The process runs `launchpad view`. It reads a pipe that closes when the script's process ends, in whatever
way, and then it ends too. Forked children of the script's process close their end of the pipe.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path

import launchpad
from launchpad.courier import fork

_PROGRAM = (
    "import sys; from launchpad.cli import watching; watching.view_beside_a_script(sys.argv[1])"
)


def start(run_id: str) -> None:
    """Start the view, which prints to the script's terminal. The program also runs without the view."""
    paths = [str(Path(launchpad.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    view = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, run_id],
        stdin=subprocess.PIPE,
        stdout=2,  # what a script prints may be for another program
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        start_new_session=True,  # the first Ctrl-C is for the program
    )
    atexit.register(_View(view).end)


class _View:
    """The view's process, which ends with the script's process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        self._process = process
        self._pipe = process.stdin
        self._is_inherited = False
        fork.drop_in_child(self)

    def end(self) -> None:
        self._pipe.close()
        if not self._is_inherited:
            self._process.wait()

    def drop_inherited(self) -> None:
        """Close the pipe in a forked child, which may run longer than the script."""
        self._is_inherited = True
        self._pipe.close()
