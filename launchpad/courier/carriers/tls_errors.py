"""What a failed handshake means, in words. OpenSSL only names the step that failed."""

from __future__ import annotations

import errno
import ssl

from launchpad.courier.errors import ProtocolError, Refused

_CURE = (
    "All processes of a run need the same credentials: "
    "keyring.add(prefix, token, credentials) with those of the other side."
)
_CLOCKS = "Compare the clocks of both hosts."

# The ends of the reasons that mean so; their beginnings differ between versions of OpenSSL.
_ALERTS_REFUSED = (
    "_ALERT_UNKNOWN_CA",
    "_ALERT_BAD_CERTIFICATE",
    "_ALERT_DECRYPT_ERROR",
    "_ALERT_CERTIFICATE_UNKNOWN",
    "_ALERT_CERTIFICATE_REQUIRED",
)
_ALERTS_CLOCK = ("_ALERT_CERTIFICATE_EXPIRED",)
_NO_TLS = ("WRONG_VERSION_NUMBER", "_ALERT_PROTOCOL_VERSION", "HTTP_REQUEST")
_NOT_YET_VALID, _EXPIRED = 9, 10  # X509_V_ERR_…


def as_client_error(error: ssl.SSLError, address: str) -> Exception:
    """What a client raises that could not come to terms with the server at `address`."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refused(f"the server at {address} shows {_describe(error)}", address=address)
    if reason.endswith(_ALERTS_REFUSED):
        what = f"the server at {address} refuses our certificate: it is of another run. {_CURE}"
        return Refused(what, address=address)
    if reason.endswith(_ALERTS_CLOCK):
        what = f"the server at {address} finds our certificate expired. {_CLOCKS}"
        return Refused(what, address=address)
    if reason.endswith(_NO_TLS):
        return ProtocolError(
            f"what listens at {address} does not speak TLS 1.3. If it is a courier server of this "
            "run, its process has no credentials for that address in its keyring.",
            address=address,
        )
    return ProtocolError(f"TLS with the server at {address} failed: {error}", address=address)


def as_server_error(error: ssl.SSLError) -> OSError:
    """What ends the one connection of a client that is not of this run."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        what = f"the client shows {_describe(error)}"
    elif reason.endswith(_ALERTS_REFUSED):
        what = f"the client refuses our certificate: it is of another run. {_CURE}"
    elif reason.endswith(_NO_TLS):
        what = "the client does not speak TLS 1.3"
    else:
        what = f"TLS failed: {error}"
    return as_broken(what)


def as_broken(what: object) -> OSError:
    """The stream is of no more use."""
    return ConnectionAbortedError(errno.ECONNABORTED, str(what))


def _describe(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
        return f"a certificate that is not valid now ({error.verify_message}). {_CLOCKS}"
    return f"a certificate of another run ({error.verify_message}). {_CURE}"
