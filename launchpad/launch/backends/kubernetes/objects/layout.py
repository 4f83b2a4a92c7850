"""Layout of a pod: its folders and ports."""

from __future__ import annotations

GIVEN, WRITABLE, STATE = "/launchpad/given", "/launchpad/run", "/launchpad/state"
"""What it was given, where it may write, what a volume may keep for its next attempt."""

CODE = "code"
"""The content that is the user's project."""

FIRST_PORT = 7070
"""Of its servers; those that follow have the next ones."""

READY_PORT = 7069
"""Where it answers when its worker is ready, and not before."""
