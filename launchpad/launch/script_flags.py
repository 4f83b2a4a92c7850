"""Launchpad's flags in a script whose own parser reads the command line.

    absl                           reads them itself, through `launchpad.flags`
    argparse                       `add_flags(parser)`: the parser reads them, and shows them in its help
    click, typer, hydra, tyro      would refuse them; taken out of `sys.argv` when the parser is imported
    any other                      `take_flags()` takes them out of `sys.argv`

See docs/decisions/0034_flags_beside_other_parsers.md.
"""

from __future__ import annotations

import sys

from launchpad import command_line
from launchpad.errors import DefinitionError
from launchpad.runtime import import_hook

# Type checkers read this name as True. Importing `typing` takes milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

REFUSING = ("click", "hydra", "typer", "tyro")
"""Parsers that refuse flags which the script has not declared, and to which launchpad can't add its own."""

_NOT_GIVEN = ""


def take_from_parsers_that_refuse_them() -> None:
    """Take the flags out of `sys.argv` when one of `REFUSING` is imported; now, if one already is.

    Raises:
        SystemExit: a flag is wrong. The reason has been printed, as a parser would print it.
    """
    for name in REFUSING:
        import_hook.when_imported(name, lambda _: _take_as_a_parser_would())


def _take_as_a_parser_would() -> None:
    try:
        # Accept a flag that is nearly one of launchpad's: it may be the script's. If not, the parser says so.
        _take()
    except DefinitionError as error:
        print(f"{sys.argv[0]}: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def take_flags() -> None:
    """Take launchpad's flags out of `sys.argv`, and let `lp.launch`, `lp.run` and `lp.plan` use them.

    This is for a script whose parser would refuse them. If the script imports click, typer, hydra or tyro,
    launchpad does this by itself. For argparse there is `lp.add_flags`, and absl knows the flags anyway.

    Example:
        import sys

        lp.take_flags()
        own = sys.argv[1:]          # without `--lp_launch_type=local_mp`

    Raises:
        DefinitionError: a flag has a wrong value, or is nearly one of launchpad's. `sys.argv` is not changed.
    """
    command_line.refuse_mistyped(sys.argv[1:], "lp_")
    _take()


def _take() -> None:
    command_line.leave_mistyped_to_parser()
    arguments = sys.argv[1:]
    occurrences = command_line.occurrences(arguments)
    values: dict[str, Any] = {}
    for occurrence in occurrences:
        try:
            values[occurrence.flag.name] = _value(occurrence.flag, occurrence.text)
        except ValueError as error:
            raise DefinitionError(f"--{occurrence.flag.name}={occurrence.text}: {error}") from None
    indices = {
        index for occurrence in occurrences for index in range(occurrence.start, occurrence.stop)
    }
    sys.argv[1:] = [argument for i, argument in enumerate(arguments) if i not in indices]
    command_line.remember(values)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add launchpad's flags to an argparse parser, as a group of their own in the help.

    `lp.launch`, `lp.run` and `lp.plan` use the command line that the parser parsed last. The parser also
    returns the values, as `lp_launch_type` and so on. A flag that is not given is None.

    Example:
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        lp.add_flags(parser)
        parser.print_help()         # with `--lp_launch_type TYPE`
    """
    import argparse

    def converter(flag: command_line.Flag) -> Callable[[str], Any]:
        def converted(text: str) -> Any:
            if text == _NOT_GIVEN:
                command_line.forget(flag)  # an earlier parse may have set it
                return None
            try:
                value = _value(flag, text)
            except ValueError as error:
                raise argparse.ArgumentTypeError(str(error)) from None
            command_line.remember({flag.name: value})
            return value

        return converted

    own = getattr(parser, "_option_string_actions", {})
    arguments = [argument for argument in sys.argv[1:] if argument.partition("=")[0] not in own]
    try:
        command_line.refuse_mistyped(arguments, "lp_")
    except DefinitionError as error:
        parser.error(str(error))
    command_line.leave_mistyped_to_parser()
    group = parser.add_argument_group("launchpad", "how the script's program is launched")
    for flag in command_line.ALL:
        group.add_argument(
            f"--{flag.name}",
            # Each parse calls this with the flag's text, or with the default if that is a string and there is
            # no flag.
            type=converter(flag),
            default=command_line.remembered().get(flag.name, _NOT_GIVEN),
            nargs="?" if flag.is_switch else None,
            const="true" if flag.is_switch else None,
            metavar=flag.metavar,
            help=f"{flag.help} (default: {flag.default or 'not'})",
        )


def _value(flag: command_line.Flag, text: str) -> Any:
    """Return a flag's value.

    Raises:
        ValueError: the value is not valid. The error may be a DefinitionError.
    """
    from launchpad.launch import registry

    value = flag.parse(text)
    if flag is command_line.LAUNCH_TYPE:
        registry.target_of(value)
    return value
