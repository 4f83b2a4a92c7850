"""The command-line flags that launchpad adds to every program, defined for absl: `absl.app.run` accepts them.

This module is imported as soon as both launchpad and absl's flags are, in either order. Without absl's flags,
it is imported when the script first uses it. `launchpad.command_line` reads the same flags without absl.

Example:
    print(f"workers may take {lp.flags.termination_notice_s()} s to stop")
"""

from __future__ import annotations

from absl import flags

from launchpad import command_line
from launchpad.command_line import termination_notice_s as termination_notice_s

LAUNCH_TYPE: flags.FlagHolder[str] = flags.DEFINE_string(
    command_line.LAUNCH_TYPE.name,
    command_line.LAUNCH_TYPE.default,
    command_line.LAUNCH_TYPE.help,
)
"""The launch type given on the command line. `lp.launch` uses it unless the script passes a launch type.

Example:
    def main(argv):
        lp.launch(make_program(), lp.LAUNCH_TYPE.value)     # in a script that calls absl's app.run(main)
"""
TERMINATION_NOTICE_SECS: flags.FlagHolder[int] = flags.DEFINE_integer(
    command_line.TERMINATION_NOTICE_SECS.name,
    command_line.TERMINATION_NOTICE_SECS.default,
    command_line.TERMINATION_NOTICE_SECS.help,
)
PDB: flags.FlagHolder[bool] = flags.DEFINE_bool(
    command_line.PDB.name, command_line.PDB.default, command_line.PDB.help
)


class _ChoiceParser(flags.ArgumentParser[str]):
    """A parser for one of a flag's choices."""

    def __init__(self, flag: command_line.Flag) -> None:
        super().__init__()
        self.syntactic_help = f"one of {flag.metavar.replace('|', ', ')}"
        self._flag = flag

    def parse(self, argument: str) -> str:
        return str(self._flag.parse(argument))


LOG_LEVEL: flags.FlagHolder[str] = flags.DEFINE_flag(
    flags.Flag(
        _ChoiceParser(command_line.LOG_LEVEL),
        flags.ArgumentSerializer[str](),
        command_line.LOG_LEVEL.name,
        command_line.LOG_LEVEL.default,
        command_line.LOG_LEVEL.help,
    )
)


VIEW: flags.FlagHolder[str] = flags.DEFINE_flag(
    flags.Flag(
        _ChoiceParser(command_line.VIEW),
        flags.ArgumentSerializer[str](),
        command_line.VIEW.name,
        command_line.VIEW.default,
        command_line.VIEW.help,
        boolean=True,
    )
)
# Set the values that the script's own parser read before absl was imported.
for _name, _value in command_line.remembered().items():
    setattr(flags.FLAGS, _name, _value)
