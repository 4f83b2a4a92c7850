"""Nodes that want GPUs."""

from __future__ import annotations

import os

import launchpad as lp

_AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")


def tells() -> None:
    """What it was given by the cluster, and what CUDA was to see of it when this module was imported."""
    given = os.environ.get("NVIDIA_VISIBLE_DEVICES", "none")
    print(given, ",".join(lp.current().gpus), _AT_IMPORT, sep="|", flush=True)
    lp.wait_for_stop()
