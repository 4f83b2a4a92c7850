"""Credentials are made in memory, kept as values, and never lie on a disk."""

from __future__ import annotations

import contextlib
import os
import pickle
import ssl
import sys
import tempfile

import pytest

from launchpad.courier import keyring
from launchpad.courier.security import certificates
from launchpad.courier.security.keyring import Credentials
from launchpad.courier.transport import tls_context
from tests.courier.conftest import CREDENTIALS, begin_source, printed_by


@pytest.fixture(autouse=True)
def no_context_is_remembered() -> None:
    tls_context.make.cache_clear()


def test_certificates_pass_the_strictest_checks_of_both_sides() -> None:
    client, server = (tls_context.make(CREDENTIALS, is_server=each) for each in (False, True))
    for context in (client, server):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, True)]

    n_done = 0
    for end in [*ends, *ends]:
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
            n_done += 1

    assert n_done == 2


def test_the_key_is_not_in_the_repr() -> None:
    secret = CREDENTIALS.key_pem.decode().splitlines()[1]

    assert secret not in repr(CREDENTIALS)
    assert CREDENTIALS.fingerprint in repr(CREDENTIALS)


def test_contexts_are_made_once_for_equal_credentials() -> None:
    equal = pickle.loads(pickle.dumps(CREDENTIALS))

    for is_server in (False, True):
        context = tls_context.make(CREDENTIALS, is_server=is_server)
        assert context is tls_context.make(equal, is_server=is_server)


def test_credentials_that_do_not_fit_together_are_an_error_that_says_what_is_needed() -> None:
    ca_pem, cert_pem, key_pem = CREDENTIALS.ca_pem, CREDENTIALS.cert_pem, CREDENTIALS.key_pem
    other = certificates.make_credentials()

    for wrong in (
        Credentials(ca_pem, cert_pem, other.key_pem),
        Credentials(ca_pem, b"", b""),
        Credentials(b"\xff", cert_pem, key_pem),
    ):
        with pytest.raises(ValueError, match="three PEM texts"):
            tls_context.make(wrong, is_server=True)


@pytest.mark.parametrize("lacks", ["memfd_create", "/proc"])
def test_without_memfd_a_private_file_is_removed_at_once(monkeypatch, tmp_path, lacks) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if lacks == "/proc":
        monkeypatch.setattr(os.path, "exists", lambda path: False)
    else:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    modes = []
    unlink = os.unlink
    monkeypatch.setattr(os, "unlink", lambda p: (modes.append(os.stat(p).st_mode), unlink(p)))

    tls_context.make(CREDENTIALS, is_server=True)

    assert [mode & 0o777 for mode in modes] == [0o600]
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no files in memory here")
def test_nothing_is_written_to_a_disk(monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "mkstemp", lambda **_: pytest.fail("a file was made"))

    tls_context.make(CREDENTIALS, is_server=True)


def test_without_the_package_it_is_said_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)

    with pytest.raises(ImportError, match=r"pip install 'launchpad-graph\[tls\]'"):
        certificates.make_credentials()


def test_who_only_uses_credentials_needs_no_package() -> None:
    source = f"""{begin_source()}
import pickle
sys.modules["cryptography"] = None
from launchpad.courier.transport import tls_context
credentials = pickle.loads({pickle.dumps(CREDENTIALS)!r})
tls_context.make(credentials, is_server=False), tls_context.make(credentials, is_server=True)
"""

    assert printed_by(source) == ""


def test_the_keyring_finds_credentials_by_the_longest_prefix_that_has_any(keys) -> None:
    special = certificates.make_credentials()
    keys("tcp:", b"token", CREDENTIALS)
    keys("tcp:learner", b"token", special)
    keys("tcp:learner:7077", b"a token for this one address")

    assert keyring.find_credentials("tcp:other:1") == CREDENTIALS
    assert keyring.find_credentials("tcp:learner:7077") == special
    assert keyring.find("tcp:learner:7077") == b"a token for this one address"
