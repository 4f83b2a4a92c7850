"""The log of courier: warnings, and lines that tell users why a client reconnected."""

from __future__ import annotations

import sys

LOGGER = "launchpad.courier"


def debug(text: str, *values: object) -> None:
    """Log a line with the level DEBUG. A call that succeeds on an open connection logs nothing.

    This function doesn't import `logging`, which would slow the import of courier. If nothing else has
    imported `logging`, nothing has set it up, and it would not show a line of this level.
    """
    # Another thread may be importing the module: it can be used once it has this function.
    get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
    if get_logger is not None:
        get_logger(LOGGER).debug(text, *values)


def warning(text: str) -> None:
    """Log a warning. The warning goes to stderr unless the program has set up logging otherwise."""
    try:
        import logging
    except OSError:
        # The import opens files, and the warning may be that no descriptors are left.
        print(text, file=sys.stderr)
        return
    logging.getLogger(LOGGER).warning(text)
