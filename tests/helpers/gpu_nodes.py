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


def tells() -> None:
    """Prints what a pod was given by the cluster, `lp.current().gpus`, and what CUDA was to see at import."""
    gpus_of_the_pod = os.environ.get("NVIDIA_VISIBLE_DEVICES", "none")
    print(gpus_of_the_pod, ",".join(lp.current().gpus), AT_IMPORT, sep="|", flush=True)
    lp.wait_for_stop()
