"""The keyring of a process: the token and the certificate to use for each address.

A program gives its secrets to this process once. Clients and servers look them up here by their address, so
a client never contains a secret, and can be pickled into an argument, a log or a manifest.

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

# The name in every certificate that we make. It is the same for all workers; gRPC requires a name.
NAME = "worker.launchpad.internal"


@dataclass(frozen=True)
class Credentials:
    """TLS credentials for both ends of a connection: a certificate, its key, and the authority they trust.

    Example:
        credentials = lp.courier.make_credentials()         # in the launcher, once for a run
        lp.courier.keyring.add("tcp:", token, credentials)  # in every process of the run

    Credentials can be pickled. The pickle contains the key, so send it only where secrets may go. The repr
    hides the key. All three fields are PEM. Using them needs only Python's `ssl`.
    """

    ca_pem: bytes
    cert_pem: bytes
    key_pem: bytes

    @property
    def fingerprint(self) -> str:
        """A short name of the authority. All processes of one run see the same name."""
        import hashlib

        return hashlib.sha256(self.ca_pem).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Credentials(authority {self.fingerprint}, key hidden)"


class _Key(NamedTuple):
    token: bytes
    credentials: Credentials | None


# Held to change or read the dict, because `_matching` iterates over it.
_lock = fork.free_in_child(threading.Lock())
_keys: dict[str, _Key] = {}


def add(prefix: str, token: bytes, credentials: Credentials | None = None) -> None:
    """Add a token for every address that begins with `prefix`.

    With credentials, TCP connections to those addresses use TLS, at both ends.
    """
    if not isinstance(token, bytes) or len(token) > MAX_TOKEN_BYTES:
        raise ValueError(f"a token is at most {MAX_TOKEN_BYTES} bytes, not {token!r:.20}")
    with _lock:
        _keys[prefix] = _Key(token, credentials)


def remove(prefix: str) -> None:
    """Remove the token and credentials of `prefix`, if there are any."""
    with _lock:
        _keys.pop(prefix, None)


def find(address: str) -> bytes:
    """Return the token of the longest prefix that `address` begins with; `b""` if no prefix fits."""
    return next((key.token for key in _matching(address)), b"")


def find_credentials(address: str) -> Credentials | None:
    """Return the credentials of the longest prefix of `address` that has any.

    If only a token was added for a longer prefix, the TLS credentials of the shorter prefix still apply.
    """
    return next((key.credentials for key in _matching(address) if key.credentials), None)


def _matching(address: str) -> list[_Key]:
    """Return the keys of all prefixes of an address, the longest prefix first."""
    with _lock:
        prefixes = [prefix for prefix in _keys if address.startswith(prefix)]
        return [_keys[prefix] for prefix in sorted(prefixes, key=len, reverse=True)]
