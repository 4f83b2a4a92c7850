"""Devices for workers, each a GPU or a part of a GPU (MIG), and the devices that this process may use.

CUDA_VISIBLE_DEVICES says which devices it may use:

unset           all of them
0,2             by number; for a GPU in MIG mode, all its parts
GPU-8f3a,MIG-…  by uuid, or the beginning of one
(empty), -1     none; entries after a -1 do not count, as with CUDA itself
"""

from __future__ import annotations

from collections.abc import Sequence

from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import DefinitionError

VISIBLE = "CUDA_VISIBLE_DEVICES"

NONE_VISIBLE = ("", "-1", "NoDevFiles")
"""The entries for no device. Slurm writes `NoDevFiles`."""


@dataclass(frozen=True)
class Device:
    """A device in CUDA's sense: a GPU, or a part of one.

    Attributes:
        index: The number of the GPU, by its place on the PCI bus, as `nvidia-smi` counts.
        uuid: `GPU-…`, or `MIG-…` for a part of a GPU.
        name: `NVIDIA A100-SXM4-40GB`.
        whole: The uuid of the GPU that this is a part of; empty for a whole one.
    """

    index: int
    uuid: str
    name: str
    whole: str = ""

    @property
    def id(self) -> str:
        """The device's entry in CUDA_VISIBLE_DEVICES: the number, or for a part the uuid."""
        return self.uuid if self.whole else str(self.index)

    @property
    def gpu(self) -> str:
        """The uuid of the GPU that it is, or that it is a part of."""
        return self.whole or self.uuid


def listed(ids: Sequence[str]) -> str:
    """Return ids as text for people, with runs of numbers shortened: `GPU 0–3, 6`."""
    spans: list[list[str]] = []
    for id in ids:
        last = spans[-1][-1] if spans else ""
        if id.isdigit() and last.isdigit() and int(id) == int(last) + 1:
            spans[-1].append(id)
        else:
            spans.append([id])
    texts = [f"{s[0]}–{s[-1]}" if len(s) > 2 else ", ".join(s) for s in spans]
    return "GPU " + ", ".join(texts) if ids else ""


def visible(devices: Sequence[Device], variable: str | None) -> list[Device]:
    """Return the devices that this value of CUDA_VISIBLE_DEVICES selects, in its order.

    Raises:
        DefinitionError: an entry matches no device, matches several devices, or repeats a device.
    """
    if variable is None:
        return list(devices)
    selection: list[Device] = []
    for entry in map(str.strip, variable.split(",")):
        if entry in NONE_VISIBLE:
            break
        # Look for the entry as it stands, then for the beginning of a GPU's uuid, then of a part's.
        exact = [d for d in devices if entry in (str(d.index), d.uuid, d.gpu)]
        matches = exact or [d for d in devices if d.gpu.startswith(entry)]
        if not exact and len({d.gpu for d in matches}) != 1:
            matches = matches or [d for d in devices if d.uuid.startswith(entry)]
            if len(matches) != 1:
                problem = "which could be any of" if matches else "which is not one of"
                candidates = ", ".join(
                    f"{d.index} ({d.uuid}, {d.name})" for d in matches or devices
                )
                candidates = candidates or "this host's 0 GPUs"
                raise DefinitionError(
                    f"{VISIBLE}={variable!r} names {entry!r}, {problem} {candidates}"
                )
        if any(device in selection for device in matches):
            raise DefinitionError(f"{VISIBLE}={variable!r} names {entry!r} twice")
        selection += matches
    return selection
