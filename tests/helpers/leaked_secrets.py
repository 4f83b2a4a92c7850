"""The secrets of a run, which only its workers may know, and the places where others might read them."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import launchpad as lp


def forms_of_secrets(running: lp.Running) -> list[bytes]:
    """Return the token and the private key, in all forms in which code might have written them down."""
    keys = running._runner.workers._keys  # type: ignore[attr-defined]
    body = b"".join(keys.credentials.key_pem.splitlines()[1:-1])
    raw = [keys.token, base64.b64decode(body), keys.credentials.key_pem.splitlines()[1]]
    texts = [form for secret in raw for form in (secret.hex().encode(), base64.b64encode(secret))]
    return [*raw, *texts, repr(keys.token).encode()]


def assert_in_none(places: str, texts: Mapping[str, bytes], secrets: Sequence[bytes]) -> None:
    """Assert that none of the texts contains any of the secrets."""
    assert texts, places
    leaks = [where for where, text in texts.items() if any(secret in text for secret in secrets)]
    assert not leaks, f"in {places}: {leaks}"


def of_processes(name: str) -> dict[str, bytes]:
    """Return this file of /proc, `cmdline` or `environ`, of all processes of this host."""
    texts = {}
    for path in Path("/proc").glob(f"[0-9]*/{name}"):
        with contextlib.suppress(OSError):
            texts[str(path)] = path.read_bytes()
    return texts


def files_below(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
