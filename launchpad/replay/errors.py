"""What the server says to its clients, and they handle: neither reaches a user."""

from __future__ import annotations

from launchpad.errors import LaunchpadError


class UnknownSteps(LaunchpadError):
    """An item refers to steps that the server does not have, as it was restarted: they are sent again."""


class ServerStopping(LaunchpadError):
    """The server stops, so a call that waited there was not carried out."""
