"""What a worker on another host must know of its launcher, and no other worker: plain data, pickled."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchpad.courier import extras, keyring
from launchpad.courier.security import certificates
from launchpad.courier.security.keyring import Credentials
from launchpad.errors import LaunchError
from launchpad.launch.planning import absl_flags
from launchpad.launch.planning.interpreter import InterpreterSettings
from launchpad.launch.planning.main_module import MainModule
from launchpad.state.places import StatePlaces


@dataclass(frozen=True)
class LauncherInfo:
    """The script that has launched: its command line, and where it finds its code.

    Attributes:
        path: Its sys.path; what of it is on a node, too, is added there.
        argv, flags: As `absl_flags.capture` gives them.
        interpreter: What workers take over from its interpreter.
        main: Its `__main__`.
    """

    path: Sequence[str]
    argv: Sequence[str]
    flags: bytes
    interpreter: InterpreterSettings
    main: MainModule

    @classmethod
    def here(cls) -> LauncherInfo:
        path = [os.path.abspath(entry) for entry in sys.path]
        flags = absl_flags.capture(sys.argv[0])
        return cls(path, tuple(sys.argv), flags, InterpreterSettings.here(), MainModule.of_script())


@dataclass(frozen=True)
class RunSecrets:
    """The secrets of a run. They travel by themselves, so that Ray keeps them in no store."""

    token: bytes
    credentials: Credentials

    @classmethod
    def of(cls, scope: str, launch_type: str) -> RunSecrets:
        """New certificates, beside the token that the run has.

        Raises:
            LaunchError: what makes them is not installed.
        """
        try:
            return cls(keyring.find(scope), certificates.make_credentials())
        except ImportError as error:
            raise LaunchError(
                f"launch type {launch_type!r} needs certificates: {error}"
                f" For all that it needs: {extras.install_command(launch_type)}"
            ) from error


def versions() -> dict[str, str]:
    """What must be the same where something is pickled and where it is unpickled."""
    import cloudpickle

    import launchpad

    return {
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "cloudpickle": cloudpickle.__version__,
        "launchpad": launchpad.__version__,
    }


def differences(launcher: Mapping[str, str]) -> str:
    """In what this process differs from the launcher, whose versions these are; empty if it does not."""
    return " and ".join(
        f"{name} {ours} here, {theirs} there"
        for name, ours in versions().items()
        if ours != (theirs := launcher.get(name, "an unknown version"))
    )


def spec_fields(
    origin: LauncherInfo, keys: RunSecrets, worker: str, state: StatePlaces
) -> dict[str, Any]:
    """The fields of a `LaunchSpec` that come from a launcher on another host.

    Every server that a worker calls belongs to its run, unless it has a key of its own.
    """
    return {
        "argv": origin.argv,
        "flags": origin.flags,
        "interpreter": origin.interpreter,
        "main": origin.main,
        "states": {worker: state},
        "keys": [("unix:", keys.token, None), ("tcp:", keys.token, keys.credentials)],
        "can_move": True,
    }


def folder_of_script() -> Path:
    """Where the user's modules are: beside the script, or where `python -m` was called."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    return Path(file).absolute().parent if file and main.__spec__ is None else Path.cwd()
