"""The backends that the contract is tried on."""

from __future__ import annotations

import os

import pytest

BACKENDS = os.environ.get("LP_CONTRACT_BACKENDS", "test_mt,test_mp,test_ray,test_kubernetes").split(
    ","
)


@pytest.fixture(params=BACKENDS)
def launch_type(request: pytest.FixtureRequest) -> str:
    """The backend under test."""
    if request.param == "test_ray":
        request.getfixturevalue("ray_cluster")
    return str(request.param)


@pytest.fixture(params=[backend for backend in BACKENDS if backend != "test_mt"])
def process_launch_type(request: pytest.FixtureRequest) -> str:
    """The backend under test, one whose workers are processes of their own."""
    if request.param == "test_ray":
        request.getfixturevalue("ray_cluster")
    return str(request.param)
