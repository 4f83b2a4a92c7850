"""Data about the launcher that its workers need: the script, and the secrets of the run. It is pickled."""

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
    """The launching script: its command line, and the places of its code.

    Attributes:
        path: Its sys.path. Workers on another node add those entries that exist there.
        argv: Its command line.
        flags: Its flags, as `absl_flags.capture` returns them.
        interpreter: The settings of its interpreter that workers take over.
        main: Its `__main__`.
    """

    path: Sequence[str]
    argv: Sequence[str]
    flags: bytes
    interpreter: InterpreterSettings
    main: MainModule

    @classmethod
    def here(cls, interpreter: InterpreterSettings | None = None) -> LauncherInfo:
        """Return the data about this process. Give `interpreter` if its settings are known already."""
        if interpreter is None:
            interpreter = InterpreterSettings.here()
        path = [os.path.abspath(entry) for entry in sys.path]
        flags = absl_flags.capture(sys.argv[0])
        return cls(path, tuple(sys.argv), flags, interpreter, MainModule.of_script())


@dataclass(frozen=True)
class RunSecrets:
    """The secrets of a run. They are sent separately, so that Ray doesn't keep them in a store."""

    token: bytes
    credentials: Credentials

    @classmethod
    def of(cls, scope: str, launch_type: str) -> RunSecrets:
        """Return the token of the run, together with new certificates.

        Raises:
            LaunchError: the package that makes certificates is not installed.
        """
        try:
            return cls(keyring.find(scope), certificates.make_credentials())
        except ImportError as error:
            raise LaunchError(
                f"launch type {launch_type!r} needs certificates: {error}"
                f" For all that it needs: {extras.install_command(launch_type)}"
            ) from error

    def entries(self) -> list[KeyringEntry]:
        """Return the keyring of a worker that calls servers on other hosts.

        It assumes that every server belongs to the worker's run, unless that server has a key of its own.
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
    """Return the versions that differ between this process and the launcher, as text; empty if all agree."""
    texts: list[str] = []
    for name, ours in versions().items():
        theirs = launcher.get(name, "an unknown version")
        if ours != theirs:
            texts.append(f"{name} {ours} here, {theirs} there")
    return " and ".join(texts)


def folder_of_script() -> Path:
    """Return the folder of the user's modules: the script's, or the one where `python -m` was called."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    return Path(file).absolute().parent if file and main.__spec__ is None else Path.cwd()
