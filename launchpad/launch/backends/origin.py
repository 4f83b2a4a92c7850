"""What a worker on another host must know of its launcher, and nobody else: plain data that is pickled."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launchpad.courier import keyring
from launchpad.courier.trust import certificates
from launchpad.courier.trust.credentials import Credentials
from launchpad.errors import LaunchError
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

    @classmethod
    def of(cls, scope: str, launch_type: str) -> Keys:
        """New certificates, beside the token that the run has.

        Raises:
          LaunchError: what makes them is not installed.
        """
        try:
            return cls(keyring.find(scope), certificates.make_credentials())
        except ImportError as error:
            raise LaunchError(
                f"launch type {launch_type!r} needs certificates: {error}. pip install"
                f" 'launchpad[{launch_type}]'"
            ) from error


def folder_of_script() -> Path:
    """Where the user's modules are: beside the script, or where `python -m` was called."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    return Path(file).absolute().parent if file and main.__spec__ is None else Path.cwd()
