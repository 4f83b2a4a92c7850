"""absl flags in workers: the launching script's command line holds in its processes too.

    launcher   capture()          values of all flags, if absl has parsed them
    worker     expect(values)     remembers them
               refresh()          gives them to the flags that exist by now: called before user code runs

A flag of the launching script itself exists in no module that a worker imports, and is defined anew. Flags
and holders among a node's arguments, or used by functions of the script, travel by name (`REDUCERS`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from absl import flags


@dataclass
class FlagValues:
    """Flag values on their way to a worker.

    Attributes:
        is_parsed: Whether absl had parsed the command line in the launcher.
        values: Name → value, of all flags that were given or changed.
        own: Name → value, of all flags that the launching script itself defines.
        args: More of the command line, for one worker: `--seed=1`.
    """

    is_parsed: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()


_expected = FlagValues()


def capture(script: str) -> bytes:
    """The values in this process, pickled, as far as they can be; to absl `script` is its `sys.argv[0]`."""
    import cloudpickle

    known, captured = flags.FLAGS, FlagValues()
    if known.is_parsed():
        captured.is_parsed = True
        own = {flag.name for flag in known.flags_by_module_dict().get(script, [])}
        for name in known:
            value = known[name].value
            if name in own or value != known[name].default:
                with contextlib.suppress(Exception):  # it cannot be pickled
                    cloudpickle.dumps(value)
                    (captured.own if name in own else captured.values)[name] = value
    return cloudpickle.dumps(captured)  # type: ignore[no-any-return]


def expect(values: bytes, args: tuple[str, ...]) -> None:
    """Remembers, in a worker's process, the values that `refresh` gives to flags."""
    import pickle

    global _expected
    _expected = pickle.loads(values)
    _expected.args = args


def refresh() -> None:
    """Gives the expected values to the flags that are defined by now; nothing where none are expected."""
    if not _expected.is_parsed:
        return
    for name in [name for name in _expected.own if name not in flags.FLAGS]:
        flags.DEFINE_string(name, None, "a flag of the launching script")
    defined = [name for name in _expected.values if name in flags.FLAGS]
    given = _expected.own | {name: _expected.values.pop(name) for name in defined}
    for name, value in given.items():
        flag = flags.FLAGS[name]
        flag.value = value
        flag.present = 1
    flags.FLAGS(["worker", *_expected.args], known_only=True)


def _holder(name: str) -> flags.FlagHolder[Any]:
    refresh()
    return flags.FlagHolder(flags.FLAGS, flags.FLAGS[name])


REDUCERS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (
        flags.FlagValues,
        lambda value: (getattr, (flags, "FLAGS")) if value is flags.FLAGS else NotImplemented,
    ),
    (flags.FlagHolder, lambda holder: (_holder, (holder.name,))),
)
