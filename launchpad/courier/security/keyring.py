"""Which token opens which address, and which certificate is shown there.

A program hands its secrets to this process once; clients and servers look them up here by their
address. That is why a client can be pickled into an argument, a log or a manifest: no secret is
ever inside it.

Example:
    lp.courier.keyring.add("unix:/run/user/1000/launchpad/", token)     # before the first client is used
    lp.courier.keyring.add("tcp:", token, credentials)                  # TLS for every address `tcp:…`
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from launchpad.courier import fork
from launchpad.courier.light_dataclass import dataclass

MAX_TOKEN_BYTES = 64

# The name in every certificate that we make: the same for all workers, but gRPC requires one.
NAME = "worker.launchpad.internal"


@dataclass(frozen=True)
class Credentials:
    """What TLS shows and checks at both ends: a certificate, its key, and the authority that both believe.

    Example:
        credentials = lp.courier.make_credentials()         # in the launcher, once for a run
        lp.courier.keyring.add("tcp:", token, credentials)  # in every process of the run

    It pickles, key included: send it only where secrets may go. Its repr hides the key.
    All three are PEM. To use them, Python's own `ssl` is enough.
    """

    ca_pem: bytes
    cert_pem: bytes
    key_pem: bytes

    @property
    def fingerprint(self) -> str:
        """A short name of the authority: two processes of one run see the same."""
        import hashlib

        return hashlib.sha256(self.ca_pem).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Credentials(authority {self.fingerprint}, key hidden)"


class _Key(NamedTuple):
    token: bytes
    credentials: Credentials | None


_lock = fork.free_in_child(threading.Lock())
_keys: dict[str, _Key] = {}


def add(prefix: str, token: bytes, credentials: Credentials | None = None) -> None:
    """From now on `token` opens every address that begins with `prefix`.

    With credentials, connections to those addresses by TCP are made with TLS, from both ends.
    """
    if not isinstance(token, bytes) or len(token) > MAX_TOKEN_BYTES:
        raise ValueError(f"a token is at most {MAX_TOKEN_BYTES} bytes, not {token!r:.20}")
    with _lock:
        _keys[prefix] = _Key(token, credentials)


def remove(prefix: str) -> None:
    """Forgets what was added for `prefix`; nothing happens if that was nothing."""
    with _lock:
        _keys.pop(prefix, None)


def find(address: str) -> bytes:
    """The token of the longest prefix that `address` begins with, `b""` if there is none."""
    return next((key.token for key in _matching(address)), b"")


def find_credentials(address: str) -> Credentials | None:
    """The credentials of the longest prefix of `address` that has any.

    An address for which a token alone was added keeps the TLS of a shorter prefix.
    """
    return next((key.credentials for key in _matching(address) if key.credentials), None)


def _matching(address: str) -> list[_Key]:
    """What was added for the prefixes of an address, the longest first."""
    with _lock:
        prefixes = [prefix for prefix in _keys if address.startswith(prefix)]
        return [_keys[prefix] for prefix in sorted(prefixes, key=len, reverse=True)]
