"""The flags that launchpad adds to every program, read from the command line.

    absl has parsed the command line      what it has found
    else                                  read here: only these, without a change to the others or to absl

absl is not imported for this, which takes longer than all of `import launchpad`: where the script has not
imported it, it cannot have parsed anything. `launchpad.flags` makes absl's flags of these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

VIEWS = ("browser", "terminal")


def _as_switch(text: str) -> bool:
    """As absl reads it."""
    if text.lower() not in ("true", "t", "1", "false", "f", "0"):
        raise ValueError("it is either true or false")
    return text.lower() in ("true", "t", "1")


def as_view(text: str) -> str:
    """One of `VIEWS`, or empty; the flag alone, which is `true`, is the browser."""
    view = {"true": VIEWS[0], "false": ""}.get(text, text)
    if view not in ("", *VIEWS):
        raise ValueError(f"there is no view {view!r}, only {', '.join(VIEWS)}")
    return view


@dataclass(frozen=True)
class Flag:
    """One of them.

    Attributes:
        parse: Makes a value of the text behind `--name=`; ValueError if it cannot.
        is_switch: Whether it may stand without a value.
    """

    name: str
    default: Any
    help: str
    parse: Callable[[str], Any] = str
    is_switch: bool = False


LAUNCH_TYPE = Flag(
    "lp_launch_type",
    "local_mt",
    "How to run the program: local_mt, local_mp, ray, spark, kubernetes, or another backend's name;"
    " test_mt and the like in tests.",
)
TERMINATION_NOTICE_SECS = Flag(
    "lp_termination_notice_secs",
    10,
    "Seconds a worker may take to stop when asked. 0: it is killed at once; negative: never.",
    int,
)
PDB = Flag(
    "lp_pdb",
    False,
    "A worker that fails waits until `launchpad attach` has looked at its exception, and fails then.",
    _as_switch,
    is_switch=True,
)
VIEW = Flag(
    "lp_view",
    "",
    "Show the program while the script runs: in the browser, as `launchpad view` does; =terminal: in"
    " lines that stay at the bottom of the terminal.",
    as_view,
    is_switch=True,
)
_ALL = (LAUNCH_TYPE, TERMINATION_NOTICE_SECS, PDB, VIEW)


def termination_notice_s() -> float:
    """The value of --lp_termination_notice_secs."""
    return float(read(TERMINATION_NOTICE_SECS))


def check_command_line(*, chooses: bool) -> None:
    """Answers `--help`, and refuses what looks like one of these flags and is none.

    Only where absl has not parsed it: it does both, and so do parsers that know all flags.

    Args:
        chooses: Whether the launch type is a matter of the flag; a script that has one of its own passes it.

    Raises:
        SystemExit: `--help` was given; the text has been printed.
        DefinitionError: a flag that is nearly one of these does not exist.
    """
    absl = _absl_values()
    if absl is not None and absl.is_parsed():
        return
    given = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    if "--help" in given:
        ours = (f"  --{flag.name}={flag.default}\n      {flag.help}" for flag in _ALL)
        print(f"{sys.argv[0]}: a program of launchpad. Flags:\n" + "\n".join(ours))
        raise SystemExit(0)
    names = [flag.name for flag in _ALL]
    for argument in given:
        name = argument.partition("=")[0].lstrip("-")
        looks_like_one = argument.startswith("-") and name.startswith("lp")
        if chooses and looks_like_one and name not in names and name not in (absl or ()):
            from launchpad.errors import DefinitionError, did_you_mean

            if hint := did_you_mean(name, names, "--{}".format, cutoff=0.8):
                raise DefinitionError(f"there is no flag {argument}.{hint}")


def read(flag: Flag) -> Any:
    """A flag's value, whether or not absl has parsed the command line; ValueError: it cannot have it."""
    value = given(flag)
    if value is not None:
        return value
    absl = _absl_values()
    return flag.default if absl is None else absl[flag.name].value


def given(flag: Flag) -> Any:
    """A flag's value where the command line or the script sets it; else None. Raises as `read` does."""
    absl = _absl_values()
    if absl is not None and absl.is_parsed():
        holder = absl[flag.name]
        return None if holder.using_default_value else holder.value
    # the last `--name=value` or `--name value`, with one dash or two, before a lone `--`
    text: str | None = None
    for i, argument in enumerate(sys.argv[1:], 1):
        if argument == "--":
            break
        name, equals, value = argument.partition("=")
        if name in (f"--{flag.name}", f"-{flag.name}"):
            following = sys.argv[i + 1] if i + 1 < len(sys.argv) else ""
            text = value if equals else ("true" if flag.is_switch else following)
        elif name in (f"--no{flag.name}", f"-no{flag.name}"):
            text = "false"
    if text is None:
        return None
    try:
        return flag.parse(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--{flag.name}={text}: {error}") from None


def _absl_values() -> Any:
    """FLAGS of absl, if they have been imported; then these are among them."""
    ours: Any = sys.modules.get("launchpad.flags")
    return ours.flags.FLAGS if hasattr(ours, "VIEW") else None  # a thread may be importing it
