"""The launcher, as its workers must know it: the script, and the secrets of the run. Plain data, pickled."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from launchpad.courier import extras, keyring
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.security import certificates
from launchpad.courier.security.keyring import Credentials
from launchpad.errors import LaunchError
from launchpad.launch.planning import absl_flags
from launchpad.launch.planning.interpreter import InterpreterSettings
from launchpad.launch.planning.main_module import MainModule

KeyringEntry = tuple[str, bytes, Credentials | None]
"""A prefix of addresses, and the token and credentials that open them: the arguments of `keyring.add`."""


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
    def here(cls, interpreter: InterpreterSettings | None = None) -> LauncherInfo:
        """Return this process, whose interpreter may have been looked at before."""
        if interpreter is None:
            interpreter = InterpreterSettings.here()
        path = [os.path.abspath(entry) for entry in sys.path]
        flags = absl_flags.capture(sys.argv[0])
        return cls(path, tuple(sys.argv), flags, interpreter, MainModule.of_script())


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

    def entries(self) -> list[KeyringEntry]:
        """Return the keyring of a worker that reaches servers on other hosts.

        Every server that a worker calls belongs to its run, unless it has a key of its own.
        """
        return [("unix:", self.token, None), ("tcp:", self.token, self.credentials)]


def versions() -> dict[str, str]:
    """Return the versions that must be the same where something is pickled and where it is unpickled."""
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


def folder_of_script() -> Path:
    """Return the folder of the user's modules: the script's, or the one where `python -m` was called."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    return Path(file).absolute().parent if file and main.__spec__ is None else Path.cwd()
