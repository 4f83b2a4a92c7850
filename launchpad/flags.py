"""The command-line flags that launchpad adds to every program.

They are absl flags, so that `absl.app.run` accepts them. Where absl has not parsed its flags they are read
from the command line here: only these, without a change to the others or to absl's state.

Example:
    print(f"workers may take {lp.flags.termination_notice_s()} s to stop")
"""

from __future__ import annotations

import sys
from typing import Any

from absl import flags

LAUNCH_TYPE: flags.FlagHolder[str] = flags.DEFINE_string(
    "lp_launch_type",
    "local_mt",
    "How to run the program: local_mt, local_mp, ray, spark, kubernetes, or another backend's name;"
    " test_mt and the like in tests.",
)
"""How the program is run, by the command line; `lp.launch` reads it where a script says nothing else.

Example:
    def main(argv):
        lp.launch(make_program(), lp.LAUNCH_TYPE.value)     # in a script that calls absl's app.run(main)
"""
TERMINATION_NOTICE_SECS: flags.FlagHolder[int] = flags.DEFINE_integer(
    "lp_termination_notice_secs",
    10,
    "Seconds a worker may take to stop when asked. 0: it is killed at once; negative: never.",
)
PDB: flags.FlagHolder[bool] = flags.DEFINE_bool(
    "lp_pdb",
    False,
    "A worker that fails waits until `launchpad attach` has looked at its exception, and fails then.",
)
VIEWS = ("browser", "terminal")


class _ViewParser(flags.ArgumentParser[str]):
    """One of `VIEWS`; the flag alone is the browser."""

    syntactic_help = f"one of {', '.join(VIEWS)}"

    def parse(self, argument: str) -> str:
        view = {"true": VIEWS[0], "false": ""}.get(argument, argument)
        if view not in ("", *VIEWS):
            raise ValueError(f"there is no view {view!r}, only {', '.join(VIEWS)}")
        return view


VIEW: flags.FlagHolder[str] = flags.DEFINE_flag(
    flags.Flag(
        _ViewParser(),
        flags.ArgumentSerializer[str](),
        "lp_view",
        "",
        "Show the program while the script runs: in the browser, as `launchpad view` does; =terminal: in"
        " lines that stay at the bottom of the terminal.",
        boolean=True,
    )
)
_ALL: tuple[flags.FlagHolder[Any], ...] = (LAUNCH_TYPE, TERMINATION_NOTICE_SECS, PDB, VIEW)


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
    if flags.FLAGS.is_parsed():
        return
    given = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    if "--help" in given:
        ours = (
            f"  --{flag.name}={flag.default}\n      {flags.FLAGS[flag.name].help}" for flag in _ALL
        )
        print(f"{sys.argv[0]}: a program of launchpad. Flags:\n" + "\n".join(ours))
        raise SystemExit(0)
    for argument in given:
        name = argument.partition("=")[0].lstrip("-")
        looks_like_one = argument.startswith("-") and name.startswith("lp")
        if chooses and looks_like_one and name not in flags.FLAGS:
            from launchpad.errors import DefinitionError, did_you_mean

            if hint := did_you_mean(name, [flag.name for flag in _ALL], "--{}".format, cutoff=0.8):
                raise DefinitionError(f"there is no flag {argument}.{hint}")


def read(holder: flags.FlagHolder[Any]) -> Any:
    """A flag's value, whether or not absl has parsed the command line; ValueError: it cannot have it."""
    value = given(holder)
    if value is not None:
        return value
    return holder.value if flags.FLAGS.is_parsed() else holder.default


def given(holder: flags.FlagHolder[Any]) -> Any:
    """A flag's value where the command line or the script sets it; else None. Raises as `read` does."""
    if flags.FLAGS.is_parsed():
        return None if flags.FLAGS[holder.name].using_default_value else holder.value
    # the last `--name=value` or `--name value`, with one dash or two, before a lone `--`
    text: str | None = None
    for i, argument in enumerate(sys.argv[1:], 1):
        if argument == "--":
            break
        flag, equals, value = argument.partition("=")
        if flag in (f"--{holder.name}", f"-{holder.name}"):
            following = sys.argv[i + 1] if i + 1 < len(sys.argv) else ""
            is_switch = flags.FLAGS[holder.name].boolean
            text = value if equals else ("true" if is_switch else following)
        elif flag in (f"--no{holder.name}", f"-no{holder.name}"):
            text = "false"
    if text is None:
        return None
    try:
        return flags.FLAGS[holder.name].parser.parse(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--{holder.name}={text}: {error}") from None
