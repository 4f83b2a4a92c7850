"""Who may call: whoever shows the token, in the metadata of the call."""

from __future__ import annotations

import hmac
from typing import Any

from launchpad.courier.over_grpc import package

_BEARER = "Bearer "


class Shown:
    """What a caller says of itself before its call is read."""

    def __init__(self, metadata: Any) -> None:
        self._metadata = {each[0]: each[1] for each in metadata or ()}

    def has_token(self, token: bytes) -> bool:
        """In constant time. Without a token anybody may call."""
        return hmac.compare_digest(self._token(), token)

    @property
    def peer(self) -> str:
        """What it calls itself; empty for one that is no courier."""
        name = self._metadata.get(package.PEER, b"")
        return bytes(name[:255]).decode(errors="replace")

    @property
    def incarnation(self) -> bytes:
        return bytes(self._metadata.get(package.INCARNATION, b""))

    @property
    def takes_bytes(self) -> int:
        """The largest result that it takes at once."""
        text = str(self._metadata.get(package.TAKES_BYTES, ""))
        return int(text) if text.isdecimal() and len(text) < 20 else package.MAX_BYTES

    @property
    def trace(self) -> bytes:
        """Its span, as in W3C Trace Context; empty if it does not trace."""
        return str(self._metadata.get("traceparent", "")).encode()

    def _token(self) -> bytes:
        if package.TOKEN in self._metadata:
            return bytes(self._metadata[package.TOKEN])
        said = str(self._metadata.get("authorization", ""))
        try:
            return bytes.fromhex(said.removeprefix(_BEARER)) if said.startswith(_BEARER) else b""
        except ValueError:
            return b""
