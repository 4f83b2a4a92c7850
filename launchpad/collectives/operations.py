"""Operations: what a backend of collectives has to do, on flat arrays and bytes.

`Collective` takes the user's values apart and puts results together; what lies between is one of these:

    CourierOperations    over the edges of the graph         backend="courier"
    TorchOperations      by torch.distributed                backend="gloo" and "nccl"

One operation at a time: `Collective` has a lock. All raise what `Generation.error` is once there is one.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

OPS = ("sum", "mean", "max", "min", "prod")
"""What arrays are reduced by. Backends never see `mean`: it is the sum, divided afterwards."""


class Operations(abc.ABC):
    """The operations of one rank in one communicator.

    An array is flat and contiguous: numpy's, or, where `takes_tensors`, torch's that are on a device.

    Attributes:
        rank, size: Of this communicator.
        takes_tensors: Whether tensors of torch come as they are, not as numpy's arrays of their memory.
    """

    rank: int
    size: int
    takes_tensors = False
    _n_calls = 0
    _values = ""

    def begin(self, values: str = "") -> None:
        """A user's call begins; of several arrays it is several operations.

        What ranks exchange says which call it belongs to, so that those that make another one are found.

        Args:
            values: The structure, types and shapes of the call's values, the same in all ranks.
        """
        self._n_calls += 1
        self._values = values

    @abc.abstractmethod
    def all_reduce(self, flat: Any, op: str, out: Any) -> None:
        """Into `out`, which may be `flat` itself, the reduction over all ranks; bits equal on all."""

    @abc.abstractmethod
    def reduce_scatter(self, flat: Any, op: str, bounds: Sequence[int]) -> Any:
        """A new array: this rank's part of the reduction. Rank r's is from `bounds[r]` to `bounds[r + 1]`."""

    @abc.abstractmethod
    def all_gather(self, flat: Any) -> list[Any]:
        """The arrays of all ranks, by rank, all of one size; this rank's own may be `flat` itself."""

    @abc.abstractmethod
    def broadcast(self, flat: Any, root: int) -> None:
        """In place: the root's array in all ranks."""

    @abc.abstractmethod
    def all_to_all(self, parts: Sequence[Any]) -> list[Any]:
        """From each rank what it has for this one. Sizes may differ; so may shapes, which are kept."""

    @abc.abstractmethod
    def barrier(self, name: str, timeout_s: float) -> None:
        """Returns when all have come here."""

    @abc.abstractmethod
    def broadcast_bytes(self, data: bytes, root: int) -> bytes:
        """The root's, in all ranks."""

    @abc.abstractmethod
    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        """Those of all ranks, by rank."""

    @abc.abstractmethod
    def gather_bytes(self, data: bytes, root: int) -> list[bytes] | None:
        """Those of all ranks in the root; None in the others."""

    @abc.abstractmethod
    def part(self, name: str, ranks: tuple[int, ...]) -> Operations:
        """The same for a part of the ranks, by their rank in this one; `name` tells parts apart."""

    def close(self) -> None:
        """The generation is over, or the worker ends: frees what it has."""
        return
