"""SSL contexts made from our credentials. They allow TLS 1.3 only, and verify both sides.

Host names are not compared, because a run's authority signs only for that run, and workers move between
hosts. `ssl` reads certificates and keys only from files, so they are passed as files in memory. This file
also has the messages for failed handshakes, because OpenSSL only names the step that failed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import ssl
import tempfile

from launchpad.courier.errors import CourierError, ProtocolError, Refused
from launchpad.courier.security.keyring import Credentials

_KEPT = 16  # contexts: one for each side and run; more than one run at a time is rare
_HINT = (
    "All processes of a run need the same credentials: "
    "keyring.add(prefix, token, credentials) with those of the other side."
)
_CLOCKS = "Compare the clocks of both hosts."

# The ends of OpenSSL's reasons. Their beginnings differ between versions of OpenSSL.
_ALERTS_REFUSED = (
    "_ALERT_UNKNOWN_CA",
    "_ALERT_BAD_CERTIFICATE",
    "_ALERT_DECRYPT_ERROR",
    "_ALERT_CERTIFICATE_UNKNOWN",
    "_ALERT_CERTIFICATE_REQUIRED",
)
_ALERTS_CLOCK = ("_ALERT_CERTIFICATE_EXPIRED",)
_NO_TLS = ("WRONG_VERSION_NUMBER", "_ALERT_PROTOCOL_VERSION", "HTTP_REQUEST")
# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL.
_NOT_YET_VALID = 9
_EXPIRED = 10


@functools.lru_cache(_KEPT)
def make(credentials: Credentials, *, is_server: bool) -> ssl.SSLContext:
    """Return the context for these credentials. Equal credentials share one context.

    Raises:
        ValueError: The parts of the credentials don't fit together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    if is_server:
        # Sessions are not resumed, because a handshake takes only about a millisecond.
        context.num_tickets = 0
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=credentials.ca_pem.decode())
        _load_chain(context, credentials.cert_pem + b"\n" + credentials.key_pem)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{credentials} cannot be used for TLS: {error}. They are three PEM texts: an authority, "
            "a certificate that it has signed, and the key of that certificate."
        ) from error
    return context


def _load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    """Load the certificate and key into the context, from a file in memory.

    The file is on disk if the system has no files in memory, or no /proc to name them by.
    """
    handle = None
    with contextlib.suppress(AttributeError, OSError):
        handle = os.memfd_create("courier-credentials")
    if handle is not None:
        try:
            path = f"/proc/self/fd/{handle}"
            os.write(handle, pem)
            if os.path.exists(path):
                context.load_cert_chain(path)
                return
        finally:
            os.close(handle)
    # Only we can read the file (0600), and it is deleted as soon as it has been read.
    handle, path = tempfile.mkstemp(prefix="courier-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)


def as_handshake_error(error: ssl.SSLError, address: str | None) -> Exception:
    """Return the exception for a failed handshake.

    Args:
        address: The server's address, at the client's end; None at the server's end.
    """
    reason = error.reason or ""
    peer = "the client" if address is None else f"the server at {address}"
    kind: type[CourierError] = Refused
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
            message = f"{peer} shows a certificate that is not valid now ({error.verify_message}). {_CLOCKS}"
        else:
            message = f"{peer} shows a certificate of another run ({error.verify_message}). {_HINT}"
    elif reason.endswith(_ALERTS_REFUSED):
        message = f"{peer} refuses our certificate: it is of another run. {_HINT}"
    elif reason.endswith(_ALERTS_CLOCK):
        message = f"{peer} finds our certificate expired. {_CLOCKS}"
    else:
        kind = ProtocolError
        if not reason.endswith(_NO_TLS):
            message = f"TLS with {peer} failed: {error}"
        elif address is None:
            message = "the client does not speak TLS 1.3"
        else:
            message = (
                f"what listens at {address} does not speak TLS 1.3. If it is a courier server of this "
                "run, its process has no credentials for that address in its keyring."
            )
    if address is None:
        return ConnectionAbortedError(errno.ECONNABORTED, message)
    return kind(message, address=address)
