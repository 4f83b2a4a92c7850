"""Makes the credentials of a run, in memory.

An authority is made, signs one certificate, and is forgotten: nobody, not even a worker of the run,
can make a second one. All workers of a run share that certificate. Whoever may call a worker may
run code in it anyway, so a certificate for each would tell nobody apart, and would keep the
authority's key alive for as long as a worker may be restarted.

Checking certificates needs only Python's `ssl`; making them needs the package `cryptography`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from launchpad.courier.security.keyring import NAME, Credentials

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_DAYS_BEFORE = 1.0  # clocks of two hosts differ
_DAYS_AFTER = 3650.0  # the key lives no longer than its run; this ends no run


def make_credentials() -> Credentials:
    """Fresh credentials, which fit no others. Takes some milliseconds.

    Raises ImportError, with what to install, where `cryptography` is missing.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ImportError(
            "making certificates for TLS needs the package cryptography: "
            "pip install 'launchpad[tls]'. (Only the process that makes them needs it.)"
        ) from error
    run = os.urandom(8).hex()
    ca_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    ca = _sign_authority(f"launchpad run {run}", ca_key)
    cert = _sign_worker(f"worker of launchpad run {run}", key, ca, ca_key)
    return Credentials(_cert_pem(ca), _cert_pem(cert), _key_pem(key))


def _sign_authority(name: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    public = key.public_key()
    return (
        _builder(name, name, public)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


def _sign_worker(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    (issuer,) = ca.subject
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder(name, str(issuer.value), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _builder(
    subject: str, issuer: str, public: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    import datetime

    from cryptography import x509
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=_DAYS_BEFORE))
        .not_valid_after(now + datetime.timedelta(days=_DAYS_AFTER))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _cert_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
