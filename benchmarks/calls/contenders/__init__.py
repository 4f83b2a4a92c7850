"""One RPC a file. What they all serve is an echo; what they pickle, they pickle alike."""

from __future__ import annotations

PROTOCOL = 5  # of pickle, for all
