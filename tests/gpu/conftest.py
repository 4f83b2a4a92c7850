"""The GPU of this host, or its stand-in."""

from __future__ import annotations

import os

import pytest

from launchpad.launch.devices import inventory

STAND_IN = "LP_GPU_STAND_IN"


@pytest.fixture(autouse=True)
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stand-in, this host seems to have one GPU."""
    if os.environ.get(STAND_IN):
        monkeypatch.setenv(inventory.FAKE, "1")


@pytest.fixture
def device() -> str:
    """The device of torch for a worker that has a GPU."""
    return "cpu" if os.environ.get(STAND_IN) else "cuda"


@pytest.fixture
def real_gpu() -> None:
    """Skip the test if the CPU stands in."""
    if os.environ.get(STAND_IN):
        pytest.skip("only a GPU can show this, and the CPU stands in for one")
