"""Stacks as a worker has written them, without those that only launchpad and Python itself know."""

from __future__ import annotations

import re

from launchpad.runtime.user_code import is_of_user


def without_launchpad_frames(stacks: str) -> str:
    """Only the threads that run other code than launchpad's and Python's own library."""
    blocks = [block for block in re.split(r"\n\n+", stacks) if block.strip()]
    theirs = []
    for block in blocks:
        files = re.findall(r'^  File "([^"]+)"', block, flags=re.M)
        if not files or any(map(is_of_user, files)):
            theirs.append(block)
    rest = len(blocks) - len(theirs)
    count = f"({rest} thread{'s' * (rest != 1)} of launchpad's own; --all shows them)"
    return "\n\n".join([*theirs, *([count] if rest else [])])
