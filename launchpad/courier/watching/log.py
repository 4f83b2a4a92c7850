"""What courier tells whoever reads logs."""

from __future__ import annotations


def warn(text: str) -> None:
    """A warning on stderr, unless the program handles this logger otherwise."""
    import logging

    logging.getLogger("launchpad.courier").warning(text)
