"""Many clients as one client: each of them has some of the keys.

    params.push(keys, values, rate=0.1)
        │  cut by the partition (partition.py): `values` has an entry for each of the `keys`
        ├──▶ shard 0: push(its keys, their values, rate=0.1)
        ├──▶ shard 1: push(its keys, their values, rate=0.1)       side by side; only shards with keys
        ▼  joined in the order of the keys
    one result

The position and type of an argument decide whether it is cut. Its length never does. So a call that is right
for some keys is right for any number of keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from launchpad.courier import trees
from launchpad.courier.client.fan_out import FanOut, Join, Request
from launchpad.courier.client.group import ClientGroup, checked
from launchpad.courier.client.partition import Partition, Share, is_column, is_many

if TYPE_CHECKING:
    from concurrent.futures import Future

C = TypeVar("C")
T = TypeVar("T")


def sharded(clients: Iterable[C], partition: Partition) -> C:
    """Return the clients of all shards as one client, which calls each shard with the shard's own keys.

    Example:
        params = lp.sharded(self._shards, lp.RangePartition(1_000_000))
        weights = params.pull(keys)                    # an array, in the order of the keys
        params.push(keys, gradient, rate=0.1)
        everything = params.pull(slice(None))

    A call asks only the shards that have some of its keys. The shards run side by side, each with its own
    keys.

    - **Keys** are the first argument, or the one in `lp.keys(…)`: an array or a list of keys, a slice or a
      range. Anything else is one key, and the result is that of the key's shard. See `RangePartition`, whose
      shards count their keys from 0, and `HashPartition`.
    - **Positional arrays and lists after the keys** have an entry for each key, and are cut like the keys.
      Everything else goes to each shard unchanged: arguments before the keys, other types, and keyword
      arguments.
    - **Results** are arrays or lists with an entry for each key, joined in the order of the keys (the
      entries of arrays must have one shape); dicts, which are merged; tuples, named tuples, dataclasses and
      attrs classes of these; or None.

    If some shards fail, the call waits for all the others, and then raises the first shard's exception with
    a note that lists every failure. The other shards have done their part. `.futures` returns one future,
    and you await the calls of `.aio`. Type checkers treat the group as one of its clients.

    (Parameter servers such as Angel and ps-lite have this as range partitions.)

    Args:
        clients: The clients of the shards. Their order and number decide which shard has which keys.
        partition: `lp.RangePartition(size)` or `lp.HashPartition()`.

    Raises:
        TypeError: `partition` is not a partition. A call raises TypeError for a value that is not a key,
            before it asks any shard.
        IndexError: Raised by calls for a key that no shard has.
        ValueError: Raised by calls for an array or a list without exactly one entry for each key.
    """
    if not isinstance(partition, Partition):
        raise TypeError(
            f"sharded takes a partition, lp.RangePartition(size) or lp.HashPartition(), not {partition!r}"
        )
    return cast("C", ClientGroup(Sharded(checked(clients, "sharded"), partition)))


def keys(values: T) -> T:
    """Mark which argument of a call of `lp.sharded` has the keys, if it is not the first.

    Example:
        params.push(worker, clock, lp.keys(rows), gradient)     # worker and clock go to each shard
    """
    return cast("T", Keys(values))


class Keys:
    """The keys of a call, on their way to `Sharded`."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "lp.keys(…) marks the keys among the positional arguments of a call of lp.sharded(clients, …);"
            " no other call takes it, nor is it given by keyword"
        )


class Sharded(FanOut):
    """A group that cuts the arguments of a call by their keys, and joins the results."""

    name = "sharded call"
    answers_with_list = False
    joins_at_once = False

    def __init__(self, clients: tuple[Any, ...], partition: Partition) -> None:
        super().__init__(clients)
        self._partition = partition

    def begin(self, method: str, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self.submit(method, *args, **kwargs)

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Request], Join]:
        at, keys = _find_keys(args)
        before = args[:at]
        after = args[at + 1 :]
        if not is_many(keys):
            shard, key = self._partition.locate(keys, len(self.clients))
            return [Request(shard, (*before, key, *after), kwargs)], _only
        self.refuse_streams((*before, *after, *kwargs.values()))
        shares = self._partition.cut(keys, len(self.clients))
        n = sum(map(len, shares))
        for value in after:
            if is_column(value) and len(value) != n:
                raise ValueError(
                    f"{n} keys, and an argument after them with {len(value)} entries: a list or an array"
                    " there has one for each key. What every shard is to get whole is given by keyword."
                )
        if not shares:  # only a shard knows the result for no keys
            return [Request(0, (*before, keys, *after), kwargs)], _only
        requests = []
        for share in shares:
            parts = [share.take(value) if is_column(value) else value for value in after]
            requests.append(Request(share.shard, (*before, share.keys, *parts), kwargs))
        return requests, partial(_join, shares)


def _find_keys(args: tuple[Any, ...]) -> tuple[int, Any]:
    """Return the position of the keys among the arguments, and the keys."""
    positions = [i for i, argument in enumerate(args) if isinstance(argument, Keys)]
    if len(positions) > 1 or not args:
        raise TypeError(
            f"a call of lp.sharded has its keys in one positional argument, and this has {len(positions)}:"
            " they are the first, or the one in lp.keys(…). lp.broadcast(group) asks every shard."
        )
    if positions:
        return positions[0], args[positions[0]].values
    return 0, args[0]


def _refuse_rounding(results: Sequence[Any], joined: Any) -> None:
    """Raise TypeError if the type of the joined array can't represent each value of the results exactly.

    numpy joins int64 with uint64 and with floats as float64, in which 2**53 + 1 becomes 2**53. It joins
    times of different units in the finer unit, in which late years overflow.
    """
    import numpy as np

    types = sorted({result.dtype for result in results}, key=str)
    for dtype in types:
        if joined.kind in "fc" and dtype.kind in "iu":
            bits = 8 * dtype.itemsize - (dtype.kind == "i")
            is_exact = bits <= np.finfo(joined).nmant + 1
        else:
            is_exact = joined.kind not in "mM" or dtype.newbyteorder("=") == joined
        if not is_exact:
            kinds = " and ".join(map(str, types))
            raise TypeError(
                f"the shards answered with arrays of {kinds}, which numpy joins as {joined}: that does not"
                f" hold every {dtype} as it is. Let all shards return the same dtype."
            )


def _only(results: list[Any]) -> Any:
    return results[0]


def _join(shares: Sequence[Share], results: Sequence[Any], path: str = "result") -> Any:
    """Join the shards' results into one result, in the order of the keys.

    Here a list is a column of entries, and a dict is a table. Other containers are joined part by part.
    """
    kind = type(results[0])
    is_data = isinstance(results[0], list | dict)
    containers = [] if is_data else [trees.contents(result) for result in results]
    parts = [container for container in containers if container is not None]
    are_of_one_type = all(type(result) is kind for result in results)
    if parts and are_of_one_type and all(part[0] == parts[0][0] for part in parts):
        names = trees.names_of(parts[0][0])
        columns = zip(*[values for _, values in parts], strict=True)
        joined_parts = [
            _join(shares, column, path + trees.step(kind, name))
            for name, column in zip(names, columns, strict=True)
        ]
        return trees.refilled(results[0], joined_parts)
    if kind is dict and all(type(result) is dict for result in results):
        merged = {key: value for result in results for key, value in result.items()}
        if len(merged) < sum(map(len, results)):
            raise ValueError(
                "dicts of two shards have the same key, and cannot be merged. The shards of a"
                " RangePartition count their keys from 0: let them return arrays or lists."
            )
        return merged
    for share, result in zip(shares, results, strict=True):
        if trees.is_masked(result):
            raise TypeError(f"{path} {trees.refusal_of_masked('a sharded call')}")
        can_be_joined = kind is list or hasattr(kind, "__array_interface__")  # numpy's
        if (
            type(result) is not kind
            or not is_column(result)
            or not can_be_joined
            or len(result) != len(share)
        ):
            answer = f"{len(result)} of" if is_column(result) else f"{result!r:.60} of"
            raise TypeError(
                f"the {len(share)} keys of shard {share.shard} were answered with {answer}"
                f" {type(result).__name__}: numpy arrays or lists with an entry for each key can be"
                " joined, dicts, None, and tuples and classes of these, of one type from all shards."
                " lp.broadcast(group) and lp.scatter(group) give the shards' own answers."
            )
    n = sum(map(len, shares))
    joined: Any = [None] * n
    if kind is not list:
        import numpy as np

        # Numbers can be joined with all other numbers. Other values can be joined only with their own kind.
        kinds = {
            (result.shape[1:], "number" if result.dtype.kind in "biufc" else result.dtype.kind)
            for result in results
        }
        if len(kinds) > 1:
            answers = "; ".join(
                f"shard {share.shard}: {result.dtype} {result.shape}"
                for share, result in zip(shares, results, strict=True)
            )
            raise TypeError(
                "arrays from several shards can be joined if their entries, one for each key, have one"
                f" shape and are all numbers or all of one kind. These came: {answers}"
            )
        dtype = np.result_type(*results)
        _refuse_rounding(results, dtype)
        joined = np.empty((n, *results[0].shape[1:]), dtype)
    for share, result in zip(shares, results, strict=True):
        if kind is list and not isinstance(share.positions, slice):
            for position, value in zip(share.positions, result, strict=True):
                joined[position] = value
        else:
            joined[share.positions] = result
    return joined
