"""Creation of a run's credentials, in memory.

A new certificate authority signs one certificate, and the authority's key is then dropped. So no process, not
even a worker of the run, can make a second certificate. All workers of a run share this certificate. A
certificate for each worker would separate nothing, because a process that may call a worker may run code in
it anyway. It would also keep the authority's key in memory for as long as a worker may be restarted.

Checking certificates needs only Python's `ssl`; making them needs the package `cryptography`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from launchpad.courier import extras
from launchpad.courier.security.keyring import NAME, Credentials

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_DAYS_BEFORE = 1.0  # because clocks of two hosts differ
_DAYS_AFTER = 3650.0  # longer than any run; the key is dropped at the end of its run


def make_credentials() -> Credentials:
    """Create new credentials, which no earlier ones match. This takes some milliseconds.

    Example:
        credentials = lp.courier.make_credentials()
        print(credentials.fingerprint)

    Raises:
        ImportError: `cryptography` is missing. The message says what to install.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ImportError(
            "making certificates for TLS needs the package cryptography: "
            f"{extras.install_command('tls')}. (Only the process that makes them needs it.)"
        ) from error
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID

    ca_name = f"launchpad run {os.urandom(8).hex()}"
    ca_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    ca = _builder(ca_name, ca_name, ca_key.public_key(), is_authority=True)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    cert = (
        _builder(f"worker of {ca_name}", ca_name, key.public_key(), is_authority=False)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(issuer, critical=False)
    )
    pem = serialization.Encoding.PEM
    return Credentials(
        ca.sign(ca_key, hashes.SHA256()).public_bytes(pem),
        cert.sign(ca_key, hashes.SHA256()).public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _builder(
    subject: str, issuer: str, public: ec.EllipticCurvePublicKey, *, is_authority: bool
) -> x509.CertificateBuilder:
    """Return a builder with the fields that the authority's and the workers' certificates share."""
    import datetime

    from cryptography import x509
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    path_length = 0 if is_authority else None
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=_DAYS_BEFORE))
        .not_valid_after(now + datetime.timedelta(days=_DAYS_AFTER))
        .add_extension(x509.BasicConstraints(is_authority, path_length), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
