"""Ciphertext on its way out of a connection, and what of the caller's data it stands for."""

from __future__ import annotations

RECORD = 16384  # bytes of data in a TLS record; only the last one of a write has fewer
FRILLS = 22  # what TLS 1.3 adds to them: a header of 5, the kind of record, 16 to prove it intact


class Sealed:
    """What one write was sealed into; before it, there may be what TLS has to say for itself.

    Args:
        data: the ciphertext.
        n_bytes: of the caller's data in it.
    """

    __slots__ = ("_n_before", "_n_bytes", "_n_gone", "_n_told", "rest")

    def __init__(self, data: bytes, n_bytes: int = 0) -> None:
        n_records = -(-n_bytes // RECORD)
        self.rest = memoryview(data)
        self._n_bytes = n_bytes
        self._n_before = len(data) - n_bytes - n_records * FRILLS
        self._n_gone = 0
        self._n_told = 0

    @property
    def n_untold(self) -> int:
        """Bytes of the caller's that it does not know to have left."""
        return self._n_bytes - self._n_told

    def advance(self, n: int) -> None:
        """The socket has taken the first `n` bytes of `rest`."""
        self._n_gone += n
        self.rest = self.rest[n:]

    def tell(self) -> int:
        """Bytes of the caller's that have left since it was last told: those of whole records."""
        n = self._n_bytes
        if self.rest:
            n_records = max(0, self._n_gone - self._n_before) // (RECORD + FRILLS)
            n = min(n, n_records * RECORD)
        n_new = n - self._n_told
        self._n_told = n
        return n_new
