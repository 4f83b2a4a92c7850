"""Nodes that say which GPUs they see, as soon as their module is imported."""

from __future__ import annotations

import os

import launchpad as lp

AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")


class Sees:
    """Tells what it had been given."""

    def devices(self) -> tuple[str | None, tuple[str, ...]]:
        """CUDA_VISIBLE_DEVICES when this module was imported, and `lp.current().gpus`."""
        return AT_IMPORT, lp.current().gpus
