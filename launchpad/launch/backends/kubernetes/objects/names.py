"""Names that a cluster takes: of a run, of its workers and of what belongs to them. Pure.

program "My Program"     run      my-program-3f9a02c1      a Service: <worker>.<run> is a worker's DNS name
worker  trainer-0.1      host     trainer-0-1              at most 63 characters, or cut and told apart
attempt 2                Job      my-program-3f9a02c1-trainer-0-1-2
"""

from __future__ import annotations

import hashlib
import re

_LONGEST = 63
_ATTEMPT = len("-10000")
_SUFFIX = len("-12345")
"""What the Job controller adds to the name of a Job for that of its pod."""

_RUN_ID = 8
_PROGRAM = 18


def run_name(program: str, run_id: str) -> str:
    """The name of a run: what all that belongs to it is called, or begins with.

    Args:
      run_id: What tells it from other runs of the program; its first 8 characters count.
    """
    prefix = _dns(program)[:_PROGRAM].strip("-") or "program"
    prefix = prefix if prefix[0].isalpha() else f"p-{prefix}"  # as a Service's name has to be
    return f"{prefix}-{run_id[:_RUN_ID]}"


def host_name(worker: str) -> str:
    """The name of a worker's host, beside which there is no other of that name in its run."""
    longest = _LONGEST - _PROGRAM - len("p--") - _RUN_ID - _ATTEMPT - _SUFFIX
    return _cut(_dns(worker), longest, worker)


def job_name(run: str, worker: str, attempt: int) -> str:
    """The name of the Job that is an attempt of a worker."""
    return f"{run}-{host_name(worker)}-{attempt}"


def label(text: str) -> str:
    """The text as a label's value: at most 63 letters, digits, `-`, `_` and `.`."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")
    return _cut(plain, _LONGEST, text)


def _dns(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _cut(plain: str, longest: int, text: str) -> str:
    """At most so long; one that had to be cut gets a mark of the whole text."""
    if len(plain) <= longest and plain:
        return plain
    mark = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{plain[: longest - len(mark) - 1].strip('-_.')}-{mark}".lstrip("-")
