"""Which devices of the host this process may use: those that its CUDA_VISIBLE_DEVICES names.

unset           all of them
0,2             by number; of a GPU in MIG mode all its parts
GPU-8f3a,MIG-…  by uuid, or the beginning of one
(empty), -1     none; what comes behind a -1 does not count, as with CUDA itself
"""

from __future__ import annotations

from collections.abc import Sequence

from launchpad.errors import DefinitionError
from launchpad.launch.devices.device import Device

VISIBLE = "CUDA_VISIBLE_DEVICES"

_NONE_VISIBLE = ("", "-1", "NoDevFiles")
"""`NoDevFiles` is what Slurm writes for none."""


def visible(devices: Sequence[Device], variable: str | None) -> list[Device]:
    """The devices that the variable's value names, in its order.

    Raises:
        DefinitionError: it names one that is not there, more than one, or one twice.
    """
    if variable is None:
        return list(devices)
    found: list[Device] = []
    for entry in variable.split(","):
        if entry.strip() in _NONE_VISIBLE:
            break
        named = _named(entry.strip(), devices, variable)
        if any(device in found for device in named):
            raise DefinitionError(f"{VISIBLE}={variable!r} names {entry.strip()!r} twice")
        found += named
    return found


def _named(entry: str, devices: Sequence[Device], variable: str) -> list[Device]:
    exact = [d for d in devices if entry in (str(d.index), d.uuid, d.gpu)]
    if exact:
        return exact
    named = [d for d in devices if d.gpu.startswith(entry)]
    if len({d.gpu for d in named}) == 1:
        return named
    named = named or [d for d in devices if d.uuid.startswith(entry)]
    if len(named) != 1:
        problem = "which could be any of" if named else "which is none of"
        raise DefinitionError(
            f"{VISIBLE}={variable!r} names {entry!r}, {problem} {_known(named or devices)}"
        )
    return named


def _known(devices: Sequence[Device]) -> str:
    return ", ".join(f"{d.index} ({d.uuid}, {d.name})" for d in devices) or "this host's 0 GPUs"
