"""What a worker on another host must know of its launcher, and nobody else: plain data that is pickled."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from launchpad.courier.trust.credentials import Credentials
from launchpad.launch import flag_values


@dataclass(frozen=True)
class Origin:
    """The script that has launched: its command line, and where it finds its code.

    Attributes:
      path: Its sys.path; what of it is on a node, too, is added there.
      argv, flags: As `flag_values.capture` gives them.
    """

    path: Sequence[str]
    argv: Sequence[str]
    flags: bytes

    @classmethod
    def here(cls) -> Origin:
        """This process."""
        path = [os.path.abspath(entry) for entry in sys.path]
        return cls(path, tuple(sys.argv), flag_values.capture(sys.argv[0]))


@dataclass(frozen=True)
class Keys:
    """The secrets of a run. They travel by themselves, so that Ray keeps them in no store."""

    token: bytes
    credentials: Credentials
