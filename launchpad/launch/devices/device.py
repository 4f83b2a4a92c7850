"""Device: a GPU, or a part of one (MIG), that workers can be given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """What CUDA calls a device.

    Attributes:
        index: The number of the GPU, by its place on the PCI bus, as `nvidia-smi` counts.
        uuid: `GPU-…`, or `MIG-…` for a part of a GPU.
        name: `NVIDIA A100-SXM4-40GB`.
        whole: The uuid of the GPU that this is a part of; empty for a whole one.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int = 0
    whole: str = ""

    @property
    def id(self) -> str:
        """As it stands in CUDA_VISIBLE_DEVICES: the number, or of a part the uuid."""
        return self.uuid if self.is_part else str(self.index)

    @property
    def gpu(self) -> str:
        """The uuid of the GPU that it is, or is a part of."""
        return self.whole or self.uuid

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a GPU; no process can use two of these."""
        return bool(self.whole)


def listed(ids: Sequence[str]) -> str:
    """Ids for people, with runs of numbers in short: `GPU 0–3, 6`."""
    return "GPU " + ", ".join(_spans(ids)) if ids else ""


def _spans(ids: Sequence[str]) -> list[str]:
    spans: list[list[str]] = []
    for one in ids:
        if spans and one.isdigit() and spans[-1][-1].isdigit() and _follows(one, spans[-1][-1]):
            spans[-1].append(one)
        else:
            spans.append([one])
    return [f"{s[0]}–{s[-1]}" if len(s) > 2 else ", ".join(s) for s in spans]


def _follows(one: str, other: str) -> bool:
    return int(one) == int(other) + 1
