"""What the server says to its clients, and they handle: neither reaches a user."""

from __future__ import annotations

from collections.abc import Mapping

from launchpad.errors import LaunchpadError


class UnknownSteps(LaunchpadError):
    """An item refers to steps that the server does not have, as it was restarted: they are sent again."""


class ServerStopping(LaunchpadError):
    """The server stops, so a call that waited there was not carried out."""


class ItemsRefused(LaunchpadError):
    """Tables do not take some items of a message, however often they are sent.

    Attributes:
        errors: By the item's key: what a user is told.
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(errors)
        self.errors = errors

    @property
    def first(self) -> Exception:
        """The error of the item that was made first."""
        return next(iter(self.errors.values()))
