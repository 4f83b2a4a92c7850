"""The name to install this project by, and its extras.

The distribution is not called as the package is: `launchpad` on PyPI is a project of other people.
"""

from __future__ import annotations

DISTRIBUTION = "launchpad-graph"


def install_command(extra: str) -> str:
    """What an error tells the user to run, such as `pip install 'launchpad-graph[tls]'`."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
