"""The name under which this project is installed, and the command that installs an extra.

The distribution's name differs from the package's, because `launchpad` on PyPI is another project.
"""

from __future__ import annotations

DISTRIBUTION = "launchpad-graph"


def install_command(extra: str) -> str:
    """Return the command that an error tells the user to run: `pip install 'launchpad-graph[tls]'`."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
