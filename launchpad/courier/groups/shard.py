"""Which of n shards a key belongs to: the same in every process, on every host, in every run."""

from __future__ import annotations

from typing import Any


def shard_of(key: Any, n: int) -> int:
    """An int modulo `n`; for other keys a digest of what they say.

    Not `hash`: that of a str differs from process to process. TypeError for keys of other types
    than int, str, bytes, None and tuples of these.
    """
    if hasattr(key, "__index__"):  # numpy's ints, too
        return int(key.__index__() % n)
    import hashlib

    digest = hashlib.blake2b(repr(_plain(key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % n


def _plain(key: Any) -> Any:
    """The key, of types whose repr says all, and the same in every version of Python."""
    if isinstance(key, tuple):
        return tuple(_plain(each) for each in key)
    if hasattr(key, "__index__"):
        return int(key.__index__())
    if isinstance(key, str):
        return key.encode("unicode_escape").decode()
    if key is None or isinstance(key, bytes):
        return key if key is None else bytes(key)
    raise TypeError(
        f"the key of a sharded call is an int, str, bytes, None or a tuple of these, not {key!r}"
        f" of type {type(key).__qualname__}: others are not the same in every process"
    )
