"""The hosts that a user names, in a list, a mapping or a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launchpad.errors import DefinitionError

VARIABLE = "LP_HOSTS"
"""The environment variable to use instead of `hosts=`."""

_HOST = re.compile(r"(?:([^@\s]+)@)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([^@\s:\[\]]+))(?::(\d+))?")
_OPTIONS = ("python", "address")

Hosts = str | os.PathLike[str] | Sequence[str] | Mapping[str, Mapping[str, str] | None]
"""A host file, a list of hosts, or host → its options."""


@dataclass(frozen=True)
class Host:
    """A host to which `ssh` can log in.

    Attributes:
        name: The host as `ssh` is given it: a name, an address, or a `Host` of ~/.ssh/config.
        user: The user to log in as; empty for what ~/.ssh/config says.
        port: The port of the host's ssh server; 0 for what ~/.ssh/config says.
        python: The Python to use there; empty for the launcher's path if the host has it, else `python3`.
        address: The IP address at which the other hosts reach it; empty for the one that `ssh` reached.
    """

    name: str
    user: str = ""
    port: int = 0
    python: str = ""
    address: str = ""

    def __str__(self) -> str:
        return f"{self.name}:{self.port}" if self.port else self.name

    @property
    def command(self) -> str:
        """The command with which a user logs in there."""
        port = f"-p {self.port} " if self.port else ""
        user = f"{self.user}@" if self.user else ""
        return f"ssh {port}{user}{self.name}"


def parse(hosts: Hosts | None) -> list[Host]:
    """Return the hosts that the argument `hosts=` names, or else $LP_HOSTS; an empty list without either.

    Raises:
        DefinitionError: something in it isn't a host, or a host is there twice.
    """
    if hosts is None:
        variable = os.environ.get(VARIABLE, "")
        is_file = "," not in variable and ("/" in variable or os.path.exists(variable))
        hosts = variable if is_file else [name for name in variable.split(",") if name.strip()]
    if isinstance(hosts, Mapping):
        parsed = [_with_options(_host(name), options or {}) for name, options in hosts.items()]
    elif isinstance(hosts, str | os.PathLike):
        parsed = _read(Path(hosts)) if os.fspath(hosts) else []
    elif isinstance(hosts, Iterable):
        parsed = [_host(name) for name in hosts]
    else:
        raise DefinitionError(
            f"hosts={hosts!r}: expected a list such as ['h1', 'alice@h2:2222'], a mapping such as"
            " {'h1': {'python': '/opt/python'}}, or the path of a file with a host in each line"
        )
    names = [str(host) for host in parsed]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"hosts: {name!r} is there {names.count(name)} times")
    return parsed


def _host(text: Any) -> Host:
    match = _HOST.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or (match[2] or match[3]).startswith("-"):
        raise DefinitionError(
            f"hosts: {text!r} is not a host; expected one such as 'h1', 'alice@h2:2222' or '[fd00::7]:2222'"
        )
    return Host(match[2] or match[3], match[1] or "", int(match[4] or 0))


def _with_options(host: Host, options: Any) -> Host:
    if not isinstance(options, Mapping) or not all(isinstance(v, str) for v in options.values()):
        raise DefinitionError(
            f"hosts: {str(host)!r} has {options!r}; expected options such as {{'python': '/opt/python'}}"
        )
    for name in options:
        if name not in _OPTIONS:
            raise DefinitionError(
                f"hosts: {str(host)!r} has {name}={options[name]!r}; there are {', '.join(_OPTIONS)}"
            )
    return replace(host, **options)


def _read(file: Path) -> list[Host]:
    """Read a file with a host in each line: `alice@h2:2222 python=/opt/python address=10.0.0.2`."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"hosts={str(file)!r} cannot be read: {error}") from error
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            options = {}
            for word in words[1:]:
                name, equals, value = word.partition("=")
                if not equals:
                    raise DefinitionError(
                        f"hosts: {word!r} is not an option such as python=/opt/python"
                    )
                options[name] = value
            hosts.append(_with_options(_host(words[0]), options))
        except DefinitionError as error:
            raise DefinitionError(f"{file}, line {number}: {error}") from None
    return hosts
