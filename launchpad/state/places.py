"""The places of a worker's state: plain data that the launcher sends to the worker."""

from __future__ import annotations

from launchpad.courier.light_dataclass import dataclass


@dataclass(frozen=True)
class StatePlaces:
    """The places of one worker's state.

    Attributes:
        own: The worker's own directory, for the user's files.
        saved: The place where `save` puts its files: the `own` directory, or a URL.
        group: A directory that all workers of the group share; empty if their hosts share none.
        run_id: The run, if several attempts of a worker may be on different hosts; else empty.
        is_kept: True if the program was launched with `state=`, so that a later launch continues from it.
    """

    own: str
    saved: str
    group: str = ""
    is_kept: bool = False
    run_id: str = ""


def is_url(place: str) -> bool:
    """Return True if `place` is a URL for fsspec, such as `s3://bucket/runs`, and not a path."""
    return "://" in place
