"""absl flags in workers: the launching script's command line applies in workers' processes too.

    launcher   capture()          values of all flags, if absl has parsed them
    worker     expect(values)     remembers them
               refresh()          sets the flags that are defined by now; called before user code runs

A flag of the launching script itself exists in no module that a worker imports, so the worker defines it
again. absl's FLAGS and the holders of flags are pickled by name (`reduced`), among a node's arguments or in
functions of the script.

If nothing has imported absl's flags, this file does not import them either.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from dataclasses import field
from typing import TYPE_CHECKING, Any

from launchpad import command_line
from launchpad.courier.light_dataclass import dataclass

if TYPE_CHECKING:
    from absl import flags


@dataclass
class FlagValues:
    """Flag values on their way to a worker.

    Attributes:
        is_parsed: True if absl had parsed the command line in the launcher.
        values: Name → value, of all flags that were given or changed.
        own: Name → value, of all flags that the launching script itself defines.
        of_launchpad: Name → value, of launchpad's flags that the script's own parser has read.
        args: Further command-line arguments, for one worker: `--seed=1`.
    """

    is_parsed: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    of_launchpad: dict[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()


_expected = FlagValues()


def capture(script: str) -> bytes:
    """Return the flags' values in this process, pickled. Values that cannot be pickled are left out.

    Args:
        script: The script's `sys.argv[0]`, by which absl knows the script's own flags.
    """
    flag_values = FlagValues(of_launchpad=dict(command_line.remembered()))
    absl_flags = _absl_flags()
    if absl_flags is None or not absl_flags.FLAGS.is_parsed():
        return pickle.dumps(flag_values)
    import cloudpickle

    all_flags = absl_flags.FLAGS
    flag_values.is_parsed = True
    own = {flag.name for flag in all_flags.flags_by_module_dict().get(script, [])}
    for name in all_flags:
        value = all_flags[name].value
        if name in own or value != all_flags[name].default:
            with contextlib.suppress(Exception):  # the value cannot be pickled
                cloudpickle.dumps(value)
                (flag_values.own if name in own else flag_values.values)[name] = value
    return cloudpickle.dumps(flag_values)  # type: ignore[no-any-return]


def expect(values: bytes, args: tuple[str, ...]) -> None:
    """Remember, in a worker's process, the values that `refresh` gives to flags."""
    global _expected
    _expected = pickle.loads(values)
    _expected.args = args
    command_line.remember(_expected.of_launchpad)


def refresh() -> None:
    """Give the expected values to the flags that are defined by now. Do nothing if none are expected."""
    if not _expected.is_parsed:
        return
    from absl import flags

    for name in [name for name in _expected.own if name not in flags.FLAGS]:
        flags.DEFINE_string(name, None, "a flag of the launching script")
    names = [name for name in _expected.values if name in flags.FLAGS]
    values = _expected.own | {name: _expected.values.pop(name) for name in names}
    for name, value in values.items():
        flag = flags.FLAGS[name]
        flag.value = value
        flag.present = 1
    flags.FLAGS(["worker", *_expected.args], known_only=True)


def reduced(value: Any) -> Any:
    """Return how to pickle absl's FLAGS or the holder of a flag; NotImplemented for anything else."""
    absl_flags = _absl_flags()
    if absl_flags is not None:
        if value is absl_flags.FLAGS:
            return _values, ()
        if isinstance(value, absl_flags.FlagHolder):
            return _holder, (value.name,)
    return NotImplemented


def _absl_flags() -> Any:
    """Return absl's module of flags; None if it is not imported, or another thread is still importing it."""
    module = sys.modules.get("absl.flags")
    return module if hasattr(module, "FLAGS") else None


def _values() -> flags.FlagValues:
    from absl import flags

    return flags.FLAGS


def _holder(name: str) -> flags.FlagHolder[Any]:
    from absl import flags

    refresh()
    return flags.FlagHolder(flags.FLAGS, flags.FLAGS[name])
