"""Leaves: a user's arrays, numbers and tensors as flat arrays, and results as what the user gave.

    ArrayLeaf     numpy's arrays and numbers, Python's numbers     the result is new
    TensorLeaf    torch's tensors                                  the result is in the same tensor

A tensor on the CPU is its memory as numpy sees it. Several leaves of one type are one flat array on the way.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from launchpad.courier import trees


class ArrayLeaf:
    """An array or a number."""

    def __init__(self, value: Any) -> None:
        self._value = value
        if trees.is_masked(value):
            raise TypeError(trees.refusal_of_masked("a collective operation"))
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            raise TypeError(
                f"is {value!r} of type {type(value).__qualname__}: collective operations take numbers,"
                " arrays of numbers, and trees of these; there are broadcast_object and all_gather_object"
            )
        self.flat: Any = np.ascontiguousarray(array).reshape(-1)
        self.shape: tuple[int, ...] = array.shape
        self.kind: Any = self.flat.dtype.str
        self.target: Any = None
        """Where the result is to be, if that is known."""

    def restored(self, flat: Any, shape: tuple[int, ...] | None = None) -> Any:
        """The result as the user gave the value: a Python number for one."""
        result = flat.reshape(self.shape if shape is None else shape)
        if isinstance(
            self._value, np.generic
        ):  # also a float64, which is one of Python's floats as well
            return result[()]
        return flat[0].item() if isinstance(self._value, bool | int | float | complex) else result


class TensorLeaf:
    """A tensor of torch."""

    def __init__(self, value: Any, on_device: bool) -> None:
        import torch

        self._tensor = value.detach()
        self.shape = tuple(value.shape)
        self._is_half = value.dtype is torch.bfloat16  # which numpy does not have
        if on_device:
            self.flat = self._tensor.contiguous().view(-1)
            self.kind = value.device, value.dtype
            self.target = self.flat if self._tensor.is_contiguous() else None
            return
        on_cpu = self._tensor.float() if self._is_half else self._tensor
        flat = on_cpu.cpu().contiguous().view(-1).numpy()
        self.flat, self.kind = flat, flat.dtype.str
        is_same = flat.size and flat.ctypes.data == self._tensor.data_ptr()
        self.target = flat if is_same else None

    def restored(self, flat: Any, shape: tuple[int, ...] | None = None) -> Any:
        """In place; a new tensor if the shape is another one."""
        import torch

        result = flat if isinstance(flat, torch.Tensor) else torch.from_numpy(flat)
        if shape is not None and shape != self.shape:
            return result.view(shape).to(self._tensor.device, self._tensor.dtype)
        if flat is not self.target:
            self._tensor.copy_(result.view(self.shape))
        return self._tensor

    def new(self, flat: Any, shape: tuple[int, ...] | None = None) -> Any:
        """A new tensor with the result."""
        import torch

        result = flat if isinstance(flat, torch.Tensor) else torch.from_numpy(flat)
        result = result.view(self.shape if shape is None else shape)
        return result.to(self._tensor.device, self._tensor.dtype)


Leaf = ArrayLeaf | TensorLeaf


def leaf_of(value: Any, takes_tensors: bool) -> Leaf:
    """The leaf; TypeError for what is no number, array or tensor."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return TensorLeaf(value, on_device=takes_tensors)
    return ArrayLeaf(value)


def buckets_of(leaves: Sequence[Leaf]) -> list[list[int]]:
    """The numbers of leaves that can be one flat array: those of one type."""
    buckets: dict[Any, list[int]] = {}
    for number, leaf in enumerate(leaves):
        buckets.setdefault(leaf.kind, []).append(number)
    return list(buckets.values())


def joined(flats: Sequence[Any]) -> Any:
    """One new flat array of several."""
    if isinstance(flats[0], np.ndarray):
        return np.concatenate(flats, dtype=flats[0].dtype)  # else it has this host's byte order
    import torch

    return torch.cat(list(flats))
