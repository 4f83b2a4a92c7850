"""What is used of GPUs, by NVIDIA's library, nvidia-ml-py (`pip install launchpad-graph[gpu]`)."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Sequence
from typing import Any


def of(gpus: Sequence[str]) -> tuple[int | None, float | None]:
    """The memory that is used of these devices together, in bytes, and how busy they are on average, in %.

    Args:
        gpus: As they stand in CUDA_VISIBLE_DEVICES.

    Returns:
        None for what it does not tell: without library or driver, and for parts of a GPU (MIG) how busy
        they are. May take long, as a driver may that is in trouble.
    """
    if (nvml := _library()) is None:
        return None, None
    memory, busy = [], []
    for gpu in gpus:
        with contextlib.suppress(nvml.NVMLError):  # the second number is not known of a part
            by_uuid = nvml.nvmlDeviceGetHandleByUUID
            device = nvml.nvmlDeviceGetHandleByIndex(int(gpu)) if gpu.isdigit() else by_uuid(gpu)
            memory.append(int(nvml.nvmlDeviceGetMemoryInfo(device).used))
            busy.append(float(nvml.nvmlDeviceGetUtilizationRates(device).gpu))
    return sum(memory) if memory else None, sum(busy) / len(busy) if busy else None


@functools.cache
def _library() -> Any:
    """The library, begun; it stays so. None: there is none, or no driver."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml
