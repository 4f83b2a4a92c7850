"""Operations: the interface of a backend of collectives, on flat arrays and bytes.

`Collective` takes the user's values apart and puts the results together. One of these classes does the work
in between:

    CourierOperations    over the edges of the graph         backend="courier"
    TorchOperations      through torch.distributed           backend="gloo" and "nccl"

A lock in `Collective` lets only one operation run at a time. Once `Generation.error` is set, all operations
raise this error.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

OPS = ("sum", "mean", "max", "min", "prod")
"""The reductions. Backends never see `mean`: `Collective` divides the sum afterwards."""


class Operations(abc.ABC):
    """The operations of one rank in one communicator.

    Arrays are flat and contiguous. They are numpy arrays, or torch tensors on a device if `takes_tensors` is
    True.

    Attributes:
        rank, size: This rank, and the number of ranks, in this communicator.
        takes_tensors: True if torch tensors are passed unchanged. Otherwise they are passed as numpy arrays
            over the same memory.
    """

    rank: int
    size: int
    takes_tensors = False
    _n_calls = 0
    _values = ""

    def begin(self, values: str = "") -> None:
        """Begin a user's call. A call with several arrays consists of several operations.

        Each message between ranks says which call it belongs to. This detects ranks that make different
        calls.

        Args:
            values: The structure, types and shapes of the call's values, which must be the same on all ranks.
        """
        self._n_calls += 1
        self._values = values

    @abc.abstractmethod
    def all_reduce(self, flat: Any, op: str, out: Any) -> None:
        """Write the reduction over all ranks to `out`, which may be `flat`. All ranks get the same bits."""

    @abc.abstractmethod
    def reduce_scatter(self, flat: Any, op: str, bounds: Sequence[int]) -> Any:
        """Return this rank's part of the reduction as a new array.

        The part of rank r goes from `bounds[r]` to `bounds[r + 1]`.
        """

    @abc.abstractmethod
    def all_gather(self, flat: Any) -> list[Any]:
        """Return the arrays of all ranks, by rank. All have the same size.

        This rank's array may be `flat` itself.
        """

    @abc.abstractmethod
    def broadcast(self, flat: Any, root: int) -> None:
        """Copy the root's array into `flat` on all ranks."""

    @abc.abstractmethod
    def all_to_all(self, parts: Sequence[Any]) -> list[Any]:
        """Return the part that each rank has for this rank. Sizes and shapes may differ, and are kept."""

    @abc.abstractmethod
    def barrier(self, name: str, timeout_s: float) -> None:
        """Wait until all ranks have come here."""

    @abc.abstractmethod
    def broadcast_bytes(self, data: bytes, root: int) -> bytes:
        """Return the root's bytes on all ranks."""

    @abc.abstractmethod
    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks, by rank."""

    @abc.abstractmethod
    def gather_bytes(self, data: bytes, root: int) -> list[bytes] | None:
        """Return, on the root, the bytes of all ranks, by rank. Return None on the other ranks."""

    @abc.abstractmethod
    def part(self, name: str, ranks: tuple[int, ...]) -> Operations:
        """Return operations for some of the ranks, given by their rank in this communicator.

        Each part must have a different name.
        """

    def close(self) -> None:
        """Free all resources. This is called when the generation is over, or when the worker ends."""
        return
