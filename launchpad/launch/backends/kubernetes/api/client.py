"""The interface to a cluster: `Api` is a real one, tests have a fake. Objects are plain dicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Manifest = dict[str, Any]

CONTAINER = "worker"
"""The name of a worker's container in its pod."""

_RETRYABLE = (429, 500, 502, 503, 504)
"""Statuses of a cluster that is busy or being restarted."""

_UNREACHABLE_S = 60.0


class ApiError(Exception):
    """The cluster has refused a request; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Unreachable(Exception):
    """The cluster has not answered."""


def is_retryable(error: ApiError | Unreachable) -> bool:
    """Whether the same request may succeed later."""
    return isinstance(error, Unreachable) or error.status in _RETRYABLE


class RetryWindow:
    """How long a caller that repeats a request puts up with a cluster that is unreachable or busy."""

    _failing_since: float | None = None

    def call(self, call: Callable[[], T], otherwise: T) -> T:
        """The result of a call; `otherwise` while calls have failed for less than a minute.

        Raises:
            ApiError: the cluster has refused, and another time would change nothing.
            Unreachable: it has not answered for a minute.
        """
        try:
            answer = call()
        except (ApiError, Unreachable) as error:
            since = self._failing_since = self._failing_since or time.monotonic()
            if not is_retryable(error) or time.monotonic() - since > _UNREACHABLE_S:
                raise
            return otherwise
        self._failing_since = None
        return answer


class Cluster(Protocol):
    """What the backend requests of a cluster. Methods may be called from any thread.

    Each raises ApiError or Unreachable.
    """

    namespace: str

    def create(self, manifest: Manifest) -> Manifest:
        """Creates an object and returns it as the cluster has it."""

    def read(self, kind: str, name: str) -> Manifest:
        """An object; ApiError with 404 if there is none. Of a Secret its metadata only."""

    def delete(
        self, kind: str, name: str, *, policy: str = "Background", grace_s: float | None = None
    ) -> None:
        """Deletes an object; does nothing if it does not exist."""

    def patch(self, kind: str, name: str, metadata: Mapping[str, Any]) -> None:
        """Merges these into an object's metadata: `{"annotations": {…}}`, `{"ownerReferences": […]}`."""

    def list(self, kind: str, selector: str) -> tuple[list[Manifest], str]:
        """The objects with these labels, and the version from which a watch continues."""

    def events(self, kind: str, name: str) -> Sequence[Manifest]:
        """The Events about an object, in no order."""

    def watch(self, kind: str, selector: str, version: str) -> Iterator[tuple[str, Manifest]]:
        """Changes of objects: (ADDED, MODIFIED or DELETED, object). It ends now and then.

        ApiError with 410: too much has changed since that version; list them again.
        """

    def log(self, pod: str, since: str = "", *, follow: bool = True) -> Iterator[bytes]:
        """The lines of a worker's container, each with its timestamp before it: as they are written.

        Starts with the second in which the timestamp `since` is.

        Args:
            follow: False for only those that it has written so far.
        """

    def rules(self) -> Sequence[Manifest]:
        """What this user may do, as rules of a Role, as far as they are known; `may` checks the rest."""

    def may(self, verb: str, kind: str) -> bool:
        """Whether this user may do that; `Pod/log` is the log of a pod."""

    def close(self) -> None:
        """Ends all reads, in whatever thread they are."""
