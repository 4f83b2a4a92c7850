"""How much to measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """`quick` proves in seconds that everything runs; its figures mean nothing."""

    rounds: int
    quick: bool = False

    def amount(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual
