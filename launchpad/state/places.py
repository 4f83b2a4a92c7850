"""Where a worker finds what was left for it: plain data, from the launcher to the worker."""

from __future__ import annotations

from launchpad.courier.light_dataclass import dataclass


@dataclass(frozen=True)
class StatePlaces:
    """Where a worker finds what was left for it.

    Attributes:
        own: A directory of its own, for files of the user's.
        saved: Where `save` puts its files: that directory, or a URL.
        group: A directory that all of its group have; empty where its hosts share none.
        is_kept: Whether a later launch goes on with it: it was launched with `state=`.
    """

    own: str
    saved: str
    group: str = ""
    is_kept: bool = False


def is_url(place: str) -> bool:
    """Whether it is no path, but something that fsspec opens: `s3://bucket/runs`."""
    return "://" in place
