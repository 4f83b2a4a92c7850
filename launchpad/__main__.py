"""`python -m launchpad`: look at running programs from another terminal. See `launchpad.cli`."""

from __future__ import annotations

import sys

from launchpad.cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
