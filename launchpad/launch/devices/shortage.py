"""The arithmetic of a refusal, in words: `learner 2×4 GPUs + actor 8×0.25 GPU = 10`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from launchpad.courier import formatting
from launchpad.launch.devices.allocation import GpuRequest
from launchpad.launch.devices.device import NONE_VISIBLE, VISIBLE, Device, listed


def demand(requests: Sequence[tuple[str, str]], total: str) -> str:
    """Return what each group asks for, and the sum.

    Args:
        requests: (group, what it asks for), for each worker.
    """
    parts = [f"{group} {number}×{amount}" for (group, amount), number in Counter(requests).items()]
    return f"{' + '.join(parts)} = {total}"


def demand_of_gpus(requests: Sequence[GpuRequest]) -> str:
    """Return which groups ask for how many GPUs."""
    amounts = [
        (r.group, " ".join(filter(None, (formatting.counted(r.gpus, "GPU"), r.accelerator))))
        for r in requests
    ]
    return demand(amounts, f"{round(sum(r.gpus for r in requests), 4):g}")


def supply(devices: Sequence[Device], installed: Sequence[Device], variable: str | None) -> str:
    """Return which devices there are, by name if there are several names, and what hides the others."""
    if not installed:
        return "this host has none, as far as the driver tells (nvidia-ml-py, or nvidia-smi)"
    hidden = f"{VISIBLE}={variable!r}"
    if not devices:
        return f"{hidden} hides all {len(installed)} of this host"
    limit = "" if len(devices) == len(installed) else f" by {hidden}, of {len(installed)}"
    ids: dict[str, list[str]] = {}
    for device in devices:
        ids.setdefault(device.name, []).append(device.id)
    by_name = [f"{len(of_name)} {name} ({listed(of_name)})" for name, of_name in ids.items()]
    names = ", ".join(by_name) if len(ids) > 1 else listed(*ids.values())
    return f"this host has {len(devices)}{limit}: {names}"


def unused(requests: Sequence[tuple[float, str | None]], where: str) -> str:
    """Return what to tell the user if there are GPUs and no worker gets one; else an empty text.

    Args:
        requests: For each worker, how many GPUs it asks for, and its own CUDA_VISIBLE_DEVICES if it has that.
        where: A text such as `and this host has GPUs`.
    """
    if any(gpus or (own or "").strip() not in NONE_VISIBLE for gpus, own in requests):
        return ""
    if all(own is not None for _, own in requests):
        return ""  # the user hides the GPUs on purpose
    return (
        f"no worker is given a GPU, {where}: the workers compute on the CPU. Give a group some:"
        " resources=lp.Resources(gpus=1); or all that there are to each of its workers:"
        f" lp.PythonProcess(env={{{VISIBLE!r}: …}})"
    )


def reason(requests: Sequence[GpuRequest], devices: Sequence[Device]) -> str:
    """Return why the requests cannot be met, if the sum alone does not show it."""
    if round(sum(request.gpus for request in requests), 4) > len(devices):
        return ""
    reasons = ["whole GPUs are not shared", "a share is of one GPU"]
    if any(device.whole for device in devices):
        reasons.append("no worker can use two parts of one")
    return f". They cannot be placed: {', '.join(reasons)}"
