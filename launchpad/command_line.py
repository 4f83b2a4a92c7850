"""The flags that launchpad adds to every program, read from the command line.

    absl has parsed the command line      its values are used
    the script's own parser reads it      the values that `launch.script_flags` remembered are used
    otherwise                             this module reads these flags; other arguments and absl don't change

This module doesn't import absl, because that takes longer than all of `import launchpad`. If the script
hasn't imported absl, absl cannot have parsed anything. `launchpad.flags` defines the same flags for absl.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

VIEWS = ("browser", "terminal")
LOG_LEVELS = ("debug", "info", "warning", "error")


def _as_switch(text: str) -> bool:
    """Parse a boolean as absl does."""
    if text.lower() not in ("true", "t", "1", "false", "f", "0"):
        raise ValueError("it is either true or false")
    return text.lower() in ("true", "t", "1")


def _as_name(text: str) -> str:
    """Return the name of a launch type if it isn't empty; the registry checks later that it exists."""
    if not text:
        raise ValueError("it needs a value, such as local_mp")
    return text


def as_view(text: str) -> str:
    """Return one of `VIEWS`, or an empty string. `true`, from a flag without a value, means the browser."""
    view = {"true": VIEWS[0], "false": ""}.get(text, text)
    if view not in ("", *VIEWS):
        raise ValueError(f"there is no view {view!r}, only {', '.join(VIEWS)}")
    return view


def as_log_level(text: str) -> str:
    """Return one of `LOG_LEVELS`, however it is capitalized, or an empty string."""
    level = text.lower()
    if level not in ("", *LOG_LEVELS):
        raise ValueError(f"there is no level {text!r}, only {', '.join(LOG_LEVELS)}")
    return level


@dataclass(frozen=True)
class Flag:
    """One of launchpad's command-line flags.

    Attributes:
        parse: Converts the text after `--name=` to the value, or raises ValueError.
        metavar: The placeholder for the value in argparse's help.
        is_switch: True if the flag may be given without a value.
    """

    name: str
    default: Any
    help: str
    parse: Callable[[str], Any]
    metavar: str
    is_switch: bool = False


LAUNCH_TYPE = Flag(
    "lp_launch_type",
    "local_mt",
    "How to run the program: local_mt, local_mp, ray, spark, kubernetes, or another backend's name;"
    " test_mt and the like in tests.",
    _as_name,
    "TYPE",
)
TERMINATION_NOTICE_SECS = Flag(
    "lp_termination_notice_secs",
    10,
    "Seconds a worker may take to stop when asked. 0: it is killed at once; negative: never.",
    int,
    "SECONDS",
)
PDB = Flag(
    "lp_pdb",
    False,
    "A worker that fails waits until `launchpad attach` has looked at its exception, and fails then.",
    _as_switch,
    "true|false",
    is_switch=True,
)
VIEW = Flag(
    "lp_view",
    "",
    "Show the program while the script runs: in the browser, as `launchpad view` does; =terminal: in"
    " lines that stay at the bottom of the terminal.",
    as_view,
    "|".join(VIEWS),
    is_switch=True,
)
LOG_LEVEL = Flag(
    "lp_log_level",
    "",
    "Log what launchpad itself does, from this level on: info for what starts and ends, debug also for"
    " connections, retries and decisions.",
    as_log_level,
    "|".join(LOG_LEVELS),
)
ALL = (LAUNCH_TYPE, TERMINATION_NOTICE_SECS, PDB, VIEW, LOG_LEVEL)

_remembered: dict[str, Any] = {}
"""The values, by name, of flags that the script's parser read, or that were removed from `sys.argv` because
the parser would refuse them."""


_parser_refuses = False


@dataclass(frozen=True)
class Occurrence:
    """A flag on a command line.

    Attributes:
        text: The value as text, for `Flag.parse`.
        start, stop: The range of the one or two arguments that form the flag.
    """

    flag: Flag
    text: str
    start: int
    stop: int

    def value(self) -> Any:
        """Return the parsed value, or raise a ValueError that names the flag."""
        try:
            return self.flag.parse(self.text)
        except ValueError as error:
            raise ValueError(f"--{self.flag.name}={self.text}: {error}") from None


def occurrences(arguments: Sequence[str]) -> list[Occurrence]:
    """Find launchpad's flags: `--name=value` or `--name value`, with one dash or two, before a lone `--`."""
    flag_of = {flag.name: flag for flag in ALL}
    switch_off = {f"no{flag.name}": flag for flag in ALL if flag.is_switch}
    matches: list[Occurrence] = []
    stop = 0
    for start, argument in enumerate(arguments):
        if argument == "--":
            break
        if start < stop or not argument.startswith("-"):
            continue
        name, equals, text = argument.partition("=")
        name = name.removeprefix("-").removeprefix("-")
        stop = start + 1
        if name in switch_off:
            matches.append(Occurrence(switch_off[name], "false", start, stop))
        elif name in flag_of:
            flag = flag_of[name]
            if not equals and flag.is_switch:
                text = "true"
            elif not equals:
                text = "".join(arguments[stop : stop + 1])
                stop += 1
            matches.append(Occurrence(flag, text, start, stop))
    return matches


def termination_notice_s() -> float:
    """Return the value of --lp_termination_notice_secs."""
    return float(read(TERMINATION_NOTICE_SECS))


def check_command_line(*, chooses: bool) -> None:
    """Answer `--help`, and refuse mistyped launchpad flags.

    If absl has parsed the command line, do nothing, since absl does both. If the script's own parser knows
    all flags, leave mistyped ones to that parser.

    Args:
        chooses: True if --lp_launch_type decides how to launch, False if the script passes a launch type.
            Mistyped flags are refused only if this is True.

    Raises:
        SystemExit: `--help` was given, and the help has been printed.
        DefinitionError: an argument is nearly one of these flags.
    """
    absl = _absl_values()
    if absl is not None and absl.is_parsed():
        return
    arguments = _before_lone_dashes(sys.argv[1:])
    if "--help" in arguments:
        ours = (f"  --{flag.name}={flag.default}\n      {flag.help}" for flag in ALL)
        print(f"{sys.argv[0]}: a program of launchpad. Flags:\n" + "\n".join(ours))
        raise SystemExit(0)
    if chooses and not _parser_refuses:
        refuse_mistyped(
            [argument for argument in arguments if _name_of(argument) not in (absl or ())], "lp"
        )


def refuse_mistyped(arguments: Sequence[str], prefix: str) -> None:
    """Refuse an argument that begins with the prefix and looks like a mistyped launchpad flag.

    Raises:
        DefinitionError: an argument is mistyped; the text names the nearest flag.
    """
    names = [flag.name for flag in ALL]
    known_names = {*names, *(f"no{flag.name}" for flag in ALL if flag.is_switch)}
    for argument in _before_lone_dashes(arguments):
        name = _name_of(argument)
        if name.startswith(prefix) and argument.startswith("-") and name not in known_names:
            from launchpad.courier.explained import did_you_mean
            from launchpad.errors import DefinitionError

            hint = did_you_mean(name, names, "--{}".format, cutoff=0.8)
            if hint:
                raise DefinitionError(f"there is no flag {argument}.{hint}")


def _name_of(argument: str) -> str:
    return argument.partition("=")[0].lstrip("-")


def _before_lone_dashes(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def leave_mistyped_to_parser() -> None:
    """Let the script's own parser, which knows all flags, refuse mistyped ones instead of the launch."""
    global _parser_refuses
    _parser_refuses = True


def remember(values: Mapping[str, Any]) -> None:
    """Set flags by name, whatever `sys.argv` says. absl's flags follow, now or when absl is imported."""
    _remembered.update(values)
    absl = _absl_values()
    if absl is not None:
        for name, value in values.items():
            setattr(absl, name, value)


def forget(flag: Flag) -> None:
    """Undo `remember` for one flag."""
    if flag.name in _remembered:
        del _remembered[flag.name]
        absl = _absl_values()
        if absl is not None:
            absl[flag.name].unparse()


def remembered() -> Mapping[str, Any]:
    """Return the flags that `remember` set, name → value."""
    return _remembered


def read(flag: Flag) -> Any:
    """Return a flag's value or its default, whether or not absl has parsed the command line.

    Raises:
        ValueError: the value on the command line is not valid.
    """
    value = given(flag)
    if value is not None:
        return value
    absl = _absl_values()
    return flag.default if absl is None else absl[flag.name].value


def given(flag: Flag) -> Any:
    """Return a flag's value if the command line or the script sets it, else None. Raise as `read` does."""
    absl = _absl_values()
    is_parsed = absl is not None and absl.is_parsed()
    if is_parsed and not absl[flag.name].using_default_value:
        return absl[flag.name].value
    if is_parsed or flag.name in _remembered:
        return _remembered.get(flag.name)
    own = [occurrence for occurrence in occurrences(sys.argv[1:]) if occurrence.flag is flag]
    return own[-1].value() if own else None


def _absl_values() -> Any:
    """Return absl's FLAGS, which include launchpad's flags; None if the script hasn't imported absl."""
    ours: Any = sys.modules.get("launchpad.flags")
    # Another thread may still be importing the module, which is complete once it has VIEW.
    return ours.flags.FLAGS if hasattr(ours, "VIEW") else None
