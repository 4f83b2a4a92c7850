"""What nobody but a run's own workers may know, and where others might come to read it."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import launchpad as lp


def forms_of_secrets(running: lp.Running) -> list[bytes]:
    """Token and private key, as somebody might have written them down."""
    keys = running._runner.workers._keys  # type: ignore[attr-defined]
    body = b"".join(keys.credentials.key_pem.splitlines()[1:-1])
    whole = [keys.token, base64.b64decode(body), keys.credentials.key_pem.splitlines()[1]]
    texts = [form for secret in whole for form in (secret.hex().encode(), base64.b64encode(secret))]
    return [*whole, *texts, repr(keys.token).encode()]


def assert_in_none(what: str, texts: Mapping[str, bytes], secrets: Sequence[bytes]) -> None:
    """None of the texts has any of the secrets in it."""
    assert texts, what
    found = [where for where, text in texts.items() if any(secret in text for secret in secrets)]
    assert not found, f"in {what}: {found}"


def of_processes(name: str) -> dict[str, bytes]:
    """This file of /proc, `cmdline` or `environ`, of all processes of this host."""
    texts = {}
    for path in Path("/proc").glob(f"[0-9]*/{name}"):
        with contextlib.suppress(OSError):
            texts[str(path)] = path.read_bytes()
    return texts


def files_below(folder: Path) -> dict[str, bytes]:
    """What is in the files of a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
