"""The log of courier: warnings, and lines for users who look for the reason of a reconnect."""

from __future__ import annotations

import sys

LOGGER = "launchpad.courier"


def debug(text: str, *values: object) -> None:
    """Log a line with the level DEBUG. Nothing calls this for a call that goes well.

    This doesn't import `logging`, which would slow the import of courier. If nothing else has imported it,
    nothing has set it up, and a line of this level would be shown nowhere.
    """
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.getLogger(LOGGER).debug(text, *values)


def warning(text: str) -> None:
    """Log a warning. It goes to stderr unless the program has set up logging otherwise."""
    try:
        import logging
    except OSError:
        # The import needs a descriptor, and the warning may be about their lack.
        print(text, file=sys.stderr)
        return
    logging.getLogger(LOGGER).warning(text)
