# PYTHON_ARGCOMPLETE_OK
"""The command `launchpad`, or `python -m launchpad`: run programs, and watch them from another terminal."""

from __future__ import annotations

import sys

from launchpad.cli.main import console, main

__all__ = ["console"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
