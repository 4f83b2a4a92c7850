"""Leaves: a user's arrays, numbers and tensors as flat arrays, and results in the user's types.

    ArrayLeaf     numpy's arrays and numbers, Python's numbers     the result is a new array or number
    TensorLeaf    torch's tensors                                  the result is in the same tensor

A tensor on the CPU is treated as a numpy array over its memory. Leaves of one type are sent as one flat
array.
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
        """The memory for the result, if it is known."""

    def restored(self, flat: Any, shape: tuple[int, ...] | None = None) -> Any:
        """Return the result in the type of the user's value. For a Python number, this is a Python number."""
        result = flat.reshape(self.shape if shape is None else shape)
        # Check this before Python's numbers, because numpy's float64 is also a Python float.
        if isinstance(self._value, np.generic):
            return result[()]
        return flat[0].item() if isinstance(self._value, bool | int | float | complex) else result


class TensorLeaf:
    """A tensor of torch."""

    def __init__(self, value: Any, on_device: bool) -> None:
        import torch

        self._tensor = value.detach()
        self.shape = tuple(value.shape)
        # numpy has no bfloat16.
        self._is_half = value.dtype is torch.bfloat16
        if on_device:
            self.flat = self._tensor.contiguous().view(-1)
            self.kind = value.device, value.dtype
            self.target = self.flat if self._tensor.is_contiguous() else None
            return
        on_cpu = self._tensor.float() if self._is_half else self._tensor
        flat = on_cpu.cpu().contiguous().view(-1).numpy()
        self.flat = flat
        self.kind = flat.dtype.str
        is_same = flat.size and flat.ctypes.data == self._tensor.data_ptr()
        self.target = flat if is_same else None

    def restored(self, flat: Any, shape: tuple[int, ...] | None = None) -> Any:
        """Copy the result into the user's tensor, and return it; or a new tensor, if the shape differs."""
        import torch

        result = flat if isinstance(flat, torch.Tensor) else torch.from_numpy(flat)
        if shape is not None and shape != self.shape:
            return result.view(shape).to(self._tensor.device, self._tensor.dtype)
        if flat is not self.target:
            self._tensor.copy_(result.view(self.shape))
        return self._tensor

    def new(self, flat: Any, shape: tuple[int, ...] | None = None) -> Any:
        """Return a new tensor with the result."""
        import torch

        result = flat if isinstance(flat, torch.Tensor) else torch.from_numpy(flat)
        result = result.view(self.shape if shape is None else shape)
        return result.to(self._tensor.device, self._tensor.dtype)


Leaf = ArrayLeaf | TensorLeaf


def leaf_of(value: Any, takes_tensors: bool) -> Leaf:
    """Return the leaf of a value. Raise TypeError unless it is a number, an array or a tensor."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return TensorLeaf(value, on_device=takes_tensors)
    return ArrayLeaf(value)


def buckets_of(leaves: Sequence[Leaf]) -> list[list[int]]:
    """Return lists of indexes. Leaves in the same list have the same type, and can be joined."""
    buckets: dict[Any, list[int]] = {}
    for number, leaf in enumerate(leaves):
        buckets.setdefault(leaf.kind, []).append(number)
    return list(buckets.values())


def joined(flats: Sequence[Any]) -> Any:
    """Return one new flat array of several."""
    if isinstance(flats[0], np.ndarray):
        # Pass the dtype, because otherwise the result would have this host's byte order.
        return np.concatenate(flats, dtype=flats[0].dtype)
    import torch

    return torch.cat(list(flats))
