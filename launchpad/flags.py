"""The command-line flags that launchpad adds to every program.

They are absl flags, so that `absl.app.run` accepts them. Where absl has not parsed its flags they are read
from the command line here: only these, without a change to the others or to absl's state.
"""

from __future__ import annotations

import sys
from typing import Any

from absl import flags

LAUNCH_TYPE: flags.FlagHolder[str | None] = flags.DEFINE_string(
    "lp_launch_type",
    None,
    "How to run the program: local_mt, local_mp, test_mt, test_mp, or another backend's name.",
)
TERMINATION_NOTICE_SECS: flags.FlagHolder[int] = flags.DEFINE_integer(
    "lp_termination_notice_secs",
    10,
    "Seconds a worker may take to stop when asked. 0: it is killed at once; negative: never.",
)


def termination_notice_s() -> float:
    """The value of --lp_termination_notice_secs."""
    return float(read(TERMINATION_NOTICE_SECS))


def read(holder: flags.FlagHolder[Any]) -> Any:
    """A flag's value, whether or not absl has parsed the command line.

    Raises:
        ValueError: what the command line gives is not a value of this flag.
    """
    if flags.FLAGS.is_parsed():
        return holder.value
    # the last `--name=value` or `--name value`, with one dash or two, before a lone `--`
    text: str | None = None
    for i, argument in enumerate(sys.argv[1:], 1):
        if argument == "--":
            break
        flag, equals, value = argument.partition("=")
        if flag in (f"--{holder.name}", f"-{holder.name}"):
            text = value if equals else (sys.argv[i + 1] if i + 1 < len(sys.argv) else "")
    if text is None:
        return holder.default
    try:
        return flags.FLAGS[holder.name].parser.parse(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--{holder.name}={text}: {error}") from None
