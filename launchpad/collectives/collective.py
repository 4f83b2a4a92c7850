"""Collective: the operations that the ranks of a group do together."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from launchpad.collectives.freeing import cause_of
from launchpad.collectives.operations import OPS, Operations
from launchpad.courier import fork, trees
from launchpad.courier.codec import by_value
from launchpad.courier.deadlines import check_timeout
from launchpad.courier.interruptions import Lock
from launchpad.courier.telemetry import tracing
from launchpad.errors import DoNotRestart
from launchpad.runtime import context

if TYPE_CHECKING:
    from launchpad.collectives.default_group import DefaultGroup
    from launchpad.collectives.generation import Generation
    from launchpad.collectives.jax_runtime import JaxRuntime
    from launchpad.collectives.leaves import Leaf

T = TypeVar("T")

_SHOWN = 100
"""Ranks compare at most this many characters of a structure's text. A longer text also has a checksum."""


class _Bucket(NamedTuple):
    """Leaves of one type, joined into one flat array.

    Attributes:
        leaves: The indexes of the leaves.
        flat: The array that contains all of these leaves.
        bounds: For each leaf, its first index in the array, and the index after its last one.
    """

    leaves: list[int]
    flat: Any
    bounds: list[tuple[int, int]]


class Collective:
    """One rank's access to its group. A `CollectiveNode`'s function gets it as its first argument.

    Example:
        def train(group: lp.Collective, data):
          weights = group.broadcast(initial_weights())          # those of rank 0
          for batch in data[group.rank :: group.size]:
            gradients = group.all_reduce(gradients_of(weights, batch), op="mean")
            weights = update(weights, gradients)

    Values are numpy arrays, numbers, and trees of these (dicts, lists, tuples, named tuples, dataclasses).
    Results are new values with the same structure, unless `out=` gives the memory for the result.
    `all_reduce` and `broadcast` change torch tensors in place and return them, as torch.distributed does. All
    values of one type in a tree are sent as one array. After an operation, the results are bitwise equal on
    all ranks.

    All ranks must make the same calls in the same order, with values of the same structure, types and
    shapes. Each rank must make its calls from one thread at a time. If a rank does something else, all ranks
    raise `CollectiveMismatch`. If a rank dies or returns, the others raise `PeerFailed`, in the call that
    waits or in the next one. If a rank does not come within `timeout_s`, the others raise TimeoutError. Each
    of these errors ends the generation, and its operations don't work any more. With `backend="gloo"` and
    `"nccl"`, calls are not compared, as in torch.distributed.

    Attributes:
        rank: The number of this rank, from 0.
        size: The number of ranks.
        generation: The number of the generation: 1 at first, and one more each time that the group starts
            over after a failure.
        local_rank: The number of this rank among the ranks of the same host.
        local_size: The number of ranks on this host.
        label: The label of the group.
    """

    def __init__(
        self,
        generation: Generation,
        operations: Operations,
        ranks: tuple[int, ...],
        timeout_s: float,
        store: Any,
        name: str = "",
    ) -> None:
        self._generation = generation
        self._operations = operations
        self._ranks = ranks
        self._timeout_s = timeout_s
        self._store = store
        self._name = name
        # Only one operation may run at a time. Ranks match their operations by number and order, which would
        # fail if the operations of two threads were mixed.
        self._lock = fork.free_in_child(Lock())
        self._n_splits = 0
        self._runtimes: list[DefaultGroup | JaxRuntime] = []
        self.rank = operations.rank
        self.size = operations.size
        self.generation = generation.number
        self.label = generation.label
        hosts = [generation.members[rank].host for rank in ranks]
        self.local_rank = hosts[: self.rank].count(hosts[self.rank])
        self.local_size = hosts.count(hosts[self.rank])

    def all_reduce(self, x: T, op: str = "sum", *, out: Any = None) -> T:
        """Return the elementwise sum, mean, maximum, minimum or product over all ranks, on all ranks.

        Args:
            x: A value with the same structure, shapes and types on all ranks.
            op: `sum`, `mean`, `max`, `min` or `prod`. `mean` needs floating-point or complex values.
            out: The memory for the result, which may be `x` itself. Only possible if `x` is a single array.
        """
        _check_op(op)

        def reduce(flat: Any, target: Any) -> Any:
            import numpy as np

            if target is None:
                target = np.empty_like(flat) if isinstance(flat, np.ndarray) else flat.clone()
            self._operations.all_reduce(flat, "sum" if op == "mean" else op, target)
            if op == "mean":
                target /= self.size
            return target

        leaves = self._leaves(x)
        if op == "mean":
            for leaf in leaves:
                _check_mean(leaf.flat)
        return self._map("all_reduce", x, leaves, reduce, out)  # type: ignore[no-any-return]

    def reduce_scatter(self, x: T, op: str = "sum") -> T:
        """Return this rank's part of the result of `all_reduce`. Each array is split along its first axis.

        Arrays are split as by `np.array_split`: if the array cannot be split evenly, the first parts are
        longer by one. The results are new arrays.

        Raises:
            ValueError: `x` contains a number, or an array without axes.
        """
        _check_op(op)
        from launchpad.collectives.courier_operations import even_bounds

        leaves = self._leaves(x)
        for leaf in leaves:
            if op == "mean":
                _check_mean(leaf.flat)
            if not leaf.shape:
                raise ValueError("reduce_scatter takes arrays with an axis to cut along")
        results = []
        with self._lock, tracing.quick_wait("reduce_scatter"):
            self._operations.begin(_layout(x, leaves))
            for leaf in leaves:
                rows = even_bounds(leaf.shape[0], self.size)
                width = leaf.flat.size // leaf.shape[0] if leaf.shape[0] else 0
                bounds = [row * width for row in rows]
                part = self._operations.reduce_scatter(
                    leaf.flat, "sum" if op == "mean" else op, bounds
                )
                if op == "mean":
                    part = part / self.size
                shape = (rows[self.rank + 1] - rows[self.rank], *leaf.shape[1:])
                results.append(leaf.restored(part, shape))
        return trees.rebuilt(x, iter(results))  # type: ignore[no-any-return]

    def all_gather(self, x: T) -> list[T]:
        """Return the values of all ranks, by rank. Their shapes and types must be the same on all ranks.

        To make one array of the values, use `np.stack`. For different shapes, use `all_gather_object`.
        """
        leaves = self._leaves(x)
        columns: list[list[Any]] = [[None] * len(leaves) for _ in range(self.size)]
        with self._lock, tracing.quick_wait("all_gather"):
            self._operations.begin(_layout(x, leaves))
            for bucket, flat, bounds in self._buckets(leaves):
                for rank, array in enumerate(self._operations.all_gather(flat)):
                    for number, (begin, end) in zip(bucket, bounds, strict=True):
                        part = array[begin:end]
                        # This rank's array may be `flat` itself, and `flat` may be the user's memory.
                        if rank == self.rank and array is flat:
                            part = part.copy()
                        columns[rank][number] = _new(leaves[number], part)
        return [trees.rebuilt(x, iter(column)) for column in columns]

    def broadcast(self, x: T, root: int = 0, *, out: Any = None) -> T:
        """Return the root's values on all ranks. The other ranks pass values of the same shapes and types.

        If the other ranks don't know the shapes beforehand, use `broadcast_object`.
        """
        self._check_rank(root, "root")

        def spread(flat: Any, target: Any) -> Any:
            if target is None:
                target = _copied(flat)
            elif target is not flat:
                target[...] = flat
            self._operations.broadcast(target, root)
            return target

        return self._map("broadcast", x, self._leaves(x), spread, out)  # type: ignore[no-any-return]

    def all_to_all(self, parts: Sequence[T]) -> list[T]:
        """Send `parts[r]` to each rank r, and return the parts that this rank got, by rank.

        Shapes may differ, but all parts of all ranks must have the same structure and types. The results are
        new arrays.

        Raises:
            ValueError: the number of parts is not `size`, or the parts differ in structure or types.
        """
        if len(parts) != self.size:
            raise ValueError(
                f"all_to_all takes a part for each of {self.size} ranks, got {len(parts)}"
            )
        leaves = [self._leaves(part) for part in parts]
        layouts = [
            _layout(part, part_leaves, with_shapes=False)
            for part, part_leaves in zip(parts, leaves, strict=True)
        ]
        for rank, layout in enumerate(layouts):
            if layout != layouts[0]:
                raise ValueError(
                    "all_to_all takes parts of one structure, and of the same types: the one for rank 0 is"
                    f" {layouts[0]}, that for rank {rank} is {layout}"
                )
        columns: list[list[Any]] = []
        with self._lock, tracing.quick_wait("all_to_all"):
            self._operations.begin(layouts[0])
            for same_leaf in zip(*leaves, strict=True):
                arrays = [leaf.flat.reshape(leaf.shape) for leaf in same_leaf]
                own_parts = list(self._operations.all_to_all(arrays))
                if own_parts[self.rank] is arrays[self.rank]:
                    own_parts[self.rank] = _copied(arrays[self.rank])
                column = [
                    _new(leaf, part.reshape(-1), tuple(part.shape))
                    for leaf, part in zip(same_leaf, own_parts, strict=True)
                ]
                columns.append(column)
        return [
            trees.rebuilt(part, iter([column[rank] for column in columns]))
            for rank, part in enumerate(parts)
        ]

    def barrier(self, name: str = "", timeout_s: float | None = None) -> None:
        """Wait until all ranks have reached this barrier. All ranks must pass the same name.

        Raises:
            TimeoutError: some ranks did not come within the timeout. The message names them.
        """
        check_timeout(timeout_s)
        with self._lock, tracing.quick_wait(f"barrier {name!r}"):
            self._operations.begin()
            self._operations.barrier(name, self._timeout_s if timeout_s is None else timeout_s)

    def broadcast_object(self, x: Any = None, root: int = 0) -> Any:
        """Return the root's object on all ranks. It can be anything that can be pickled.

        The other ranks can omit `x`.
        """
        self._check_rank(root, "root")
        data = _dumped(x) if self.rank == root else b""
        with self._lock, tracing.quick_wait("broadcast_object"):
            self._operations.begin()
            root_data = self._operations.broadcast_bytes(data, root)
        return x if self.rank == root else _loaded(root_data)

    def all_gather_object(self, x: Any) -> list[Any]:
        """Return the objects of all ranks, by rank."""
        data = _dumped(x)
        with self._lock, tracing.quick_wait("all_gather_object"):
            self._operations.begin()
            return [_loaded(pickled) for pickled in self._operations.all_gather_bytes(data)]

    def gather_object(self, x: Any, root: int = 0) -> list[Any] | None:
        """Return, on the root, the objects of all ranks, by rank. Return None on the other ranks."""
        self._check_rank(root, "root")
        data = _dumped(x)
        with self._lock, tracing.quick_wait("gather_object"):
            self._operations.begin()
            pickles = self._operations.gather_bytes(data, root)
        return None if pickles is None else [_loaded(pickled) for pickled in pickles]

    @overload
    def split(self, color: None, key: int | None = None) -> None: ...

    @overload
    def split(self, color: object, key: int | None = None) -> Collective: ...

    def split(self, color: Any, key: int | None = None) -> Collective | None:
        """Return a collective of the ranks with the same color, for example a row or column of a mesh.

        Args:
            color: Anything that can be compared and pickled. A rank that passes None joins no collective, and
                gets None.
            key: The sort key for the ranks of the new collective. By default, this is the rank in this one.
        """
        choices = self.all_gather_object((color, self.rank if key is None else key))
        self._n_splits += 1
        colors = list(dict.fromkeys(rank_color for rank_color, _ in choices))
        if color is None:
            return None
        ranks = [rank for rank, (rank_color, _) in enumerate(choices) if rank_color == color]
        ranks.sort(key=lambda rank: (choices[rank][1], rank))
        name = f"{self._n_splits}.{colors.index(color)}"
        return Collective(
            self._generation,
            self._operations.part(name, tuple(ranks)),
            tuple(self._ranks[rank] for rank in ranks),
            self._timeout_s,
            self._store,
            f"{self._name}/{name}",
        )

    def init_torch(self, backend: str | None = None, *, default_group: bool = True) -> None:
        """Set up torch.distributed in this process, with the ranks of this group, as torchrun does.

        This sets torchrun's variables, such as RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR, and makes
        torch's default group. DDP, FSDP and code built on them run unchanged. When the node's function ends,
        the group is dropped.

        Example:
            def train(group: lp.Collective):
              group.init_torch()
              model = DistributedDataParallel(Model())

        LOCAL_RANK counts the ranks of a host. But if workers have their own GPUs (`lp.Resources(gpus=1)`),
        each worker sees only its own, and LOCAL_RANK is 0. So `torch.cuda.set_device(LOCAL_RANK)` is right
        in both cases.

        Args:
            backend: The backend for `dist.init_process_group`. By default gloo for CPUs, and nccl for GPUs
                if there are any.
            default_group: Pass False if the code calls `dist.init_process_group()` itself, with `env://`.

        Raises:
            DoNotRestart: this worker is a thread, and torch has only one default group in a process.
            PeerFailed: another rank has failed.
        """
        from launchpad.collectives.default_group import DefaultGroup

        self._check_init("init_torch", "torch has one default group")
        with self._translating_errors():
            group = DefaultGroup(self._store, self._generation)
            self._runtimes.append(group)
            if default_group:
                group.make(backend)

    def init_jax(self) -> None:
        """Call jax.distributed.initialize for these ranks. `jax.devices()` then has the devices of all ranks.

        Call it once in a process, before you use anything else of jax. Restart the group only as a whole. If
        a rank fails, jax cannot go on, and the processes of all other ranks end a second later.

        Raises:
            DoNotRestart: this worker is a thread, and jax has only one runtime in a process.
            PeerFailed: another rank has failed.
        """
        from launchpad.collectives.jax_runtime import JaxRuntime

        self._check_init("init_jax", "jax.distributed has one runtime")
        self._runtimes.append(JaxRuntime(self._store, self._generation))

    def close(self, *, has_raised: bool = False) -> None:
        """Free all resources. launchpad calls this when the function has returned or raised."""
        with contextlib.ExitStack() as all_of_it:
            all_of_it.callback(self._operations.close)
            for runtime in reversed(self._runtimes):
                all_of_it.callback(runtime.close, has_raised=has_raised)

    @contextlib.contextmanager
    def _translating_errors(self) -> Iterator[None]:
        """Turn an error of torch or jax that the generation's end caused into the error that ended it."""
        try:
            yield
        except Exception as error:
            cause = cause_of(error, self._generation)
            if cause is None:
                raise
            raise cause from error

    def _on_failure(self, callback: Callable[[Exception], object]) -> None:
        """Call `callback` once, in a thread of launchpad, with the error that ends the generation."""
        self._generation.on_end(callback)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Collective belongs to the worker that it was given to, and cannot be sent"
        )

    def __repr__(self) -> str:
        part = f", part {self._name}" if self._name else ""
        rank = f"rank {self.rank} of {self.size}, generation {self.generation}"
        return f"<Collective {self.label!r}{part}: {rank}>"

    def _check_init(self, method: str, limit: str) -> None:
        if self._name:
            raise ValueError(
                f"{method}() is for all ranks of {self.label!r}, not for a part of them"
            )
        me = context.current()
        if not context.is_a_process(me):
            raise DoNotRestart(
                f"{me.name} is a thread, and {limit} in a process, which all threads would share. Launch with"
                f" --lp_launch_type=local_mp to use {method}(); on threads use the collective's own"
                " operations, lp.CollectiveNode(…, backend='gloo')"
            )

    def _check_rank(self, rank: int, name: str) -> None:
        if not 0 <= rank < self.size:
            raise ValueError(f"{name}={rank!r}: expected a rank from 0 to {self.size - 1}")

    def _leaves(self, x: Any) -> list[Leaf]:
        from launchpad.collectives.leaves import leaf_of

        values: list[Any] = []
        trees.flatten(x, values)
        leaves = []
        for number, value in enumerate(values):
            try:
                leaves.append(leaf_of(value, self._operations.takes_tensors))
            except TypeError as error:
                raise TypeError(f"{trees.path_of(x, number)} {error}") from None
        return leaves

    def _buckets(self, leaves: list[Leaf]) -> list[_Bucket]:
        """Join leaves of the same type into one flat array each."""
        from launchpad.collectives.leaves import buckets_of, joined

        buckets = []
        for bucket in buckets_of(leaves):
            flats = [leaves[number].flat for number in bucket]
            bounds = []
            end = 0
            for flat in flats:
                bounds.append((end, end + len(flat)))
                end += len(flat)
            flat_array = flats[0] if len(flats) == 1 else joined(flats)
            buckets.append(_Bucket(bucket, flat_array, bounds))
        return buckets

    def _map(
        self,
        name: str,
        x: Any,
        leaves: list[Leaf],
        operate: Callable[[Any, Any], Any],
        out: Any,
    ) -> Any:
        """Apply an operation to each flat array of a tree, and return the tree of results.

        `operate` gets the flat array and the memory for the result. If this is None, it makes new memory.
        """
        if out is not None:
            leaves[0].target = _checked_out(out, leaves)
        results: list[Any] = [None] * len(leaves)
        with self._lock, tracing.quick_wait(name):
            self._operations.begin(_layout(x, leaves))
            for bucket, flat, bounds in self._buckets(leaves):
                target = leaves[bucket[0]].target if len(bucket) == 1 else flat
                result = operate(flat, target)
                for number, (begin, end) in zip(bucket, bounds, strict=True):
                    part = result if len(bucket) == 1 else result[begin:end]
                    results[number] = leaves[number].restored(part)
        return out if out is not None else trees.rebuilt(x, iter(results))


def _new(leaf: Leaf, flat: Any, shape: tuple[int, ...] | None = None) -> Any:
    new = getattr(leaf, "new", leaf.restored)
    return new(flat, shape)


def _layout(x: Any, leaves: Sequence[Leaf], *, with_shapes: bool = True) -> str:
    """Describe the structure, types and shapes in a short text. If any of them differ, the texts differ."""
    names = (trees.spec_text(leaf.flat.dtype, leaf.shape if with_shapes else ()) for leaf in leaves)
    text = trees.described(trees.flatten(x, []), names)
    if len(text) <= _SHOWN and text.isascii():
        return text
    plain = text.encode("ascii", "backslashreplace")
    return f"{plain[:_SHOWN].decode()}… ({len(leaves)} values, #{zlib.crc32(plain):08x})"


def _copied(array: Any) -> Any:
    return array.copy() if hasattr(array, "copy") else array.clone()


def _checked_out(out: Any, leaves: list[Leaf]) -> Any:
    """Return the memory of `out`, flattened.

    If the input overlaps `out`, but begins at another address, it is copied first, so that the operation
    doesn't overwrite input that it has not read yet.
    """
    import numpy as np

    if not leaves:
        raise ValueError("out= takes the result of one array, and x holds none")
    leaf = leaves[0]
    fits = (
        len(leaves) == 1
        and getattr(out, "shape", None) == leaf.shape
        and getattr(getattr(out, "dtype", None), "str", "") == leaf.kind
        and out.flags.c_contiguous
        and out.flags.writeable
    )
    if not fits:
        raise ValueError(
            "out= takes a contiguous array of the shape and type of x, which can be written, where x is one"
            " array"
        )
    flat = out.reshape(-1)
    is_shifted = np.may_share_memory(leaf.flat, flat) and leaf.flat.ctypes.data != flat.ctypes.data
    if is_shifted:
        leaf.flat = leaf.flat.copy()
    return flat


def _check_op(op: str) -> None:
    if op not in OPS:
        raise ValueError(f"op={op!r}: expected one of {', '.join(OPS)}")


def _check_mean(flat: Any) -> None:
    import numpy as np

    if isinstance(flat, np.ndarray) and flat.dtype.kind in "biu":
        raise TypeError(f"the mean of {flat.dtype} would have fractions: give floats")


def _dumped(x: Any) -> bytes:
    data: bytes = by_value.dumps(x, 5)
    return data


def _loaded(data: bytes) -> Any:
    import pickle

    return pickle.loads(data)
