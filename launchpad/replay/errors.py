"""Errors that the server raises for its clients, which handle them. Users never see them."""

from __future__ import annotations

from collections.abc import Mapping

from launchpad.errors import LaunchpadError


class UnknownSteps(LaunchpadError):
    """An item refers to steps that a restarted server doesn't have. The client sends the steps again."""


class ServerStopping(LaunchpadError):
    """The server is stopping, and has not done a waiting call."""


class ItemsRefused(LaunchpadError):
    """Tables have refused some items of a message. Sending these items again would not help.

    Attributes:
        errors: For each refused item, by its key, the error to raise for the user.
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(errors)
        self.errors = errors

    @property
    def first(self) -> Exception:
        """The error of the item that was made first."""
        return next(iter(self.errors.values()))
