"""Cluster: what the backend asks of one. `Api` is a real one, `FakeCluster` one for tests.

Objects are plain dicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

Manifest = dict[str, Any]

CONTAINER = "worker"
"""What the container of a worker is called in its pod."""


class Refused(Exception):
    """The cluster has answered that it will not; `status` is the code of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Unreachable(Exception):
    """The cluster has not answered."""


_PASSING = (429, 500, 502, 503, 504)
"""What a cluster answers that is busy or being restarted."""


def is_passing(error: Refused | Unreachable) -> bool:
    """Whether asking again may help."""
    return isinstance(error, Unreachable) or error.status in _PASSING


class Cluster(Protocol):
    """What the backend asks of a cluster. Methods may be called from any thread.

    Each raises Refused, or Unreachable.
    """

    namespace: str

    def create(self, manifest: Manifest) -> Manifest:
        """Makes an object; what it has become."""

    def read(self, kind: str, name: str) -> Manifest:
        """An object; Refused with 404 if there is none. Of a Secret its metadata only."""

    def delete(
        self, kind: str, name: str, *, policy: str = "Background", grace_s: float | None = None
    ) -> None:
        """Deletes an object; one that is not there is passed over."""

    def annotate(self, pod: str, annotations: Mapping[str, str]) -> None:
        """Sets annotations of a pod."""

    def give(self, secret: str, owners: Sequence[Mapping[str, Any]]) -> None:
        """Sets what a Secret belongs to."""

    def list(self, kind: str, selector: str) -> tuple[list[Manifest], str]:
        """Those with these labels, and the version from which a watch goes on."""

    def events(self, kind: str, name: str) -> Sequence[Manifest]:
        """What the cluster has noted about an object, in no order."""

    def watch(self, kind: str, selector: str, version: str) -> Iterator[tuple[str, Manifest]]:
        """What happens to them: (ADDED, MODIFIED or DELETED, object). It ends now and then.

        Refused with 410: too much has happened since that version; list them again.
        """

    def log(self, pod: str, since: str = "") -> Iterator[bytes]:
        """The lines of a worker's container as they come, each after the time when it was written.

        From the second on in which `since`, such a time, is.
        """

    def printed(self, pod: str) -> Iterator[bytes]:
        """The same, of what is there now."""

    def rules(self) -> Sequence[Manifest]:
        """What this user may do, as rules of a Role, as far as that can be told; the rest `may` tells."""

    def may(self, verb: str, kind: str) -> bool:
        """Whether this user may do that; `Pod/log` is the log of a pod."""

    def close(self) -> None:
        """Ends what is being read, by whatever thread."""
