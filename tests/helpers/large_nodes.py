"""Nodes that are given large arrays, and look at their own memory."""

from __future__ import annotations

from typing import Any

import launchpad as lp

SIZE = 64 << 20
ITEMS = SIZE // 8
TIMEOUT_S = 120.0


def own_bytes() -> int:
    """Return how many bytes of this process no file backs: those allocated, and those copied on write."""
    with open("/proc/self/smaps_rollup") as file:
        line = next(line for line in file if line.startswith("Anonymous:"))
    return int(line.split()[1]) << 10


def read_and_write(values: Any) -> tuple[int, int, float, float]:
    """Own memory when all has been read, and when half has been written; the sums before and after.

    Each of the group has written before one reads again.
    """
    first_sum = float(values.sum())
    when_read = own_bytes()
    lp.barrier("read", TIMEOUT_S)
    values[: len(values) // 2] = lp.current().replica_index + 2
    when_written = own_bytes()
    lp.barrier("written", TIMEOUT_S)
    return when_read, when_written, first_sum, float(values.sum())


def write_and_fail_once(values: Any) -> float:
    """The sum, at the second attempt; at the first one it is changed."""
    if lp.current().attempt == 1:
        values[:] = 7
        raise ValueError("once")
    return float(values.sum())


def look(*arguments: Any) -> tuple[list[tuple[Any, ...]], int]:
    """Return the sum and the flags of each array, and how much memory is this process's own."""
    properties: list[tuple[Any, ...]] = []
    for each in arguments:
        array = each["array"] if isinstance(each, dict) else each
        flags = array.flags
        properties.append(
            (float(array.sum()), flags.writeable, flags.c_contiguous, flags.f_contiguous)
        )
    return properties, own_bytes()


def are_apart(first: Any, second: Any, third: Any) -> tuple[bool, float]:
    """True if the first two are one; and what the third has where the first was written."""
    first[0] = 5
    return first is second, float(third[0])


def look_at_tensors(*tensors: Any) -> list[tuple[Any, ...]]:
    """Sum, type, strides and need of a gradient of each tensor; then each is written into."""
    import torch

    properties = []
    for tensor in tensors:
        total = tensor.detach().to_dense().sum().item()
        strides = tensor.stride() if tensor.layout == torch.strided else None
        properties.append((total, tensor.dtype, strides, tensor.requires_grad))
        tensor.detach().zero_()
    return properties


def files_behind(values: Any) -> set[str]:
    """The files in memory, with their numbers, that this process has mapped as its own, to write into."""
    del values
    with open("/proc/self/maps") as file:
        lines = [line.split() for line in file if "memfd:" in line]
    return {" ".join(line[3:]) for line in lines if line[1].startswith("rw-p")}


def add_up(values: Any) -> float:
    return float(values.sum())
