"""Memory use and load of GPUs, read with NVIDIA's nvidia-ml-py (`pip install launchpad-graph[gpu]`)."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Sequence
from typing import Any


def of(gpus: Sequence[str]) -> tuple[int | None, float | None]:
    """Return the used memory of these devices together in bytes, and their average load in percent.

    The call may take long if the driver is in trouble.

    Args:
        gpus: The devices, written as in CUDA_VISIBLE_DEVICES.

    Returns:
        None for each unknown number. Without the library or a driver, both are unknown. For a part of a GPU
        (MIG), the load is unknown.
    """
    nvml = _library()
    if nvml is None:
        return None, None
    memory = []
    busy = []
    for gpu in gpus:
        # The load of a part of a GPU is unknown.
        with contextlib.suppress(nvml.NVMLError):
            by_uuid = nvml.nvmlDeviceGetHandleByUUID
            device = nvml.nvmlDeviceGetHandleByIndex(int(gpu)) if gpu.isdigit() else by_uuid(gpu)
            memory.append(int(nvml.nvmlDeviceGetMemoryInfo(device).used))
            busy.append(float(nvml.nvmlDeviceGetUtilizationRates(device).gpu))
    return sum(memory) if memory else None, sum(busy) / len(busy) if busy else None


@functools.cache
def _library() -> Any:
    """Import and initialise the library once, and return it; None without the library or a driver."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml
