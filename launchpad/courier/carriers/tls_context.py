"""What `ssl` needs to know of our credentials. TLS 1.3 only, and both sides are verified.

Names are not compared: the authority of a run signs for that run alone, and its workers move
between hosts. `ssl` reads certificates and keys from files only, so they are passed as files that
exist in memory.
"""

from __future__ import annotations

import functools
import os
import ssl
import tempfile

from launchpad.courier.trust.credentials import Credentials

_KEPT = 16  # one for each side and run; more than one run at a time is rare


@functools.lru_cache(_KEPT)
def for_server(credentials: Credentials) -> ssl.SSLContext:
    """The same object for equal credentials. Raises ValueError when they do not fit together."""
    context = _make(ssl.PROTOCOL_TLS_SERVER, credentials)
    context.num_tickets = 0  # sessions are not resumed: the handshake takes about a millisecond
    return context


@functools.lru_cache(_KEPT)
def for_client(credentials: Credentials) -> ssl.SSLContext:
    """The same object for equal credentials. Raises ValueError when they do not fit together."""
    return _make(ssl.PROTOCOL_TLS_CLIENT, credentials)


def _make(protocol: int, credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=credentials.ca_pem.decode())
        _load_own(context, credentials.cert_pem + b"\n" + credentials.key_pem)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{credentials} cannot be used for TLS: {error}. They are three PEM texts: an authority, "
            "a certificate that it has signed, and the key of that certificate."
        ) from error
    return context


def _load_own(context: ssl.SSLContext, pem: bytes) -> None:
    if not _load_from_memory(context, pem):
        _load_from_disk(context, pem)


def _load_from_memory(context: ssl.SSLContext, pem: bytes) -> bool:
    """False where the system has no such files, or no /proc to name them by."""
    if not hasattr(os, "memfd_create"):
        return False
    try:
        handle = os.memfd_create("courier-credentials")
    except OSError:
        return False
    try:
        path = f"/proc/self/fd/{handle}"
        os.write(handle, pem)
        if not os.path.exists(path):
            return False
        context.load_cert_chain(path)
        return True
    finally:
        os.close(handle)


def _load_from_disk(context: ssl.SSLContext, pem: bytes) -> None:
    """A file that only we can read (0600), gone as soon as it has been read."""
    handle, path = tempfile.mkstemp(prefix="courier-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
