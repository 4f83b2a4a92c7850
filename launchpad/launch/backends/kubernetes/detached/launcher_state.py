"""The reports of a launcher pod about its program: annotations that only the pod itself writes. Pure.

    launchpad/launched   the record of the run, without its workers: the program was launched
    launchpad/ended      how the program has ended: the pod's last report

Each is compressed JSON, because a cluster takes only 256 KiB of annotations for an object.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launchpad.errors import LaunchError, ProgramFailed
from launchpad.launch.backends.kubernetes import pod_messages
from launchpad.launch.backends.kubernetes.api.client import Manifest
from launchpad.outcome import Outcome

LAUNCHED = "launchpad/launched"
ENDED = "launchpad/ended"

MOST_BYTES = 80_000
"""The limit of one annotation."""


@dataclass(frozen=True)
class ProgramEnded:
    """The end of a program.

    Attributes:
        failures: The outcomes of failed workers. The first is the cause of the others.
        why: The text of another error that has ended the program; empty if there was no such error.
        states: State → the names of the workers that ended in it.
    """

    program: str
    failures: Sequence[Outcome] = ()
    why: str = ""
    states: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def failure(self) -> ProgramFailed | LaunchError | None:
        """Return the exception with which the program has failed; None if it has not failed."""
        if self.failures:
            first, *consequences = self.failures
            return ProgramFailed(self.program, first, tuple(consequences))
        return LaunchError(self.why) if self.why else None


def written(content: Any) -> str:
    """Return the text of an annotation. If there isn't enough room, only the end of each string is kept."""
    packed = ""
    for most in (8000, 1000, 100):
        text = json.dumps(_cut(content, most)).encode()
        packed = base64.b64encode(zlib.compress(text)).decode()
        if len(packed) <= MOST_BYTES:
            break
    return packed


def _cut(value: Any, most: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _cut(member, most) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut(member, most) for member in value]
    return value[-most:] if isinstance(value, str) else value


def read(pod: Manifest, annotation: str) -> Any:
    """Return the content of an annotation of a launcher pod; None if the pod does not have it."""
    packed = pod.get("metadata", {}).get("annotations", {}).get(annotation, "")
    return json.loads(zlib.decompress(base64.b64decode(packed))) if packed else None


def ended_in(pod: Manifest) -> ProgramEnded | None:
    """Return the end that a launcher pod reports; None if the program runs, or the pod couldn't report it."""
    end = read(pod, ENDED)
    if end is None:
        return None
    failures = [pod_messages.outcome_of(failure) for failure in end["failures"]]
    return ProgramEnded(**{**end, "failures": failures})
