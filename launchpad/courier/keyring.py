"""Which token opens which address.

A program hands its token to this process once; clients and servers look it up here by their
address. That is why a client can be pickled into an argument, a log or a manifest: the secret is
never inside it.

    keyring.add("unix:/run/user/1000/launchpad/", token)    # before the first client is used
"""

from __future__ import annotations

import threading

_lock = threading.Lock()
_tokens: dict[str, bytes] = {}

MAX_TOKEN_BYTES = 64


def add(prefix: str, token: bytes) -> None:
    """From now on `token` opens every address that begins with `prefix`."""
    if not isinstance(token, bytes) or len(token) > MAX_TOKEN_BYTES:
        raise ValueError(f"a token is at most {MAX_TOKEN_BYTES} bytes, not {token!r:.20}")
    with _lock:
        _tokens[prefix] = token


def remove(prefix: str) -> None:
    """Forgets the token of `prefix`; nothing happens if there is none."""
    with _lock:
        _tokens.pop(prefix, None)


def find(address: str) -> bytes:
    """The token of the longest prefix that `address` begins with, `b""` if there is none."""
    with _lock:
        matching = [prefix for prefix in _tokens if address.startswith(prefix)]
        return _tokens[max(matching, key=len)] if matching else b""
