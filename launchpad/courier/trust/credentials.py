"""Who belongs to a run: what TLS needs to show, and to check, at both ends of a connection."""

from __future__ import annotations

from dataclasses import dataclass

# The name in every certificate that we make. It tells nobody apart, but gRPC insists on one.
NAME = "worker.launchpad.internal"


@dataclass(frozen=True)
class Credentials:
    """A certificate, its key, and the authority that both sides of a connection believe.

    Example:
        credentials = certificates.make_credentials()   # in the launcher, once for a run
        keyring.add("tcp:", token, credentials)         # in every process of the run

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
