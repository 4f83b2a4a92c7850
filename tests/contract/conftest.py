"""The backends that the contract is tried on."""

from __future__ import annotations

import os

import pytest

BACKENDS = os.environ.get(
    "LP_CONTRACT_BACKENDS", "test_mt,test_mp,test_ray,test_spark,test_kubernetes"
).split(",")

_SHARED = {"test_ray": "ray_cluster", "test_spark": "spark_context"}
"""The fixtures of clusters that all tests share."""


@pytest.fixture(params=BACKENDS)
def launch_type(request: pytest.FixtureRequest) -> str:
    """The backend under test."""
    return _ready(request)


@pytest.fixture(params=[backend for backend in BACKENDS if backend != "test_mt"])
def process_launch_type(request: pytest.FixtureRequest) -> str:
    """The backend under test, one whose workers are processes of their own."""
    return _ready(request)


def _ready(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name in _SHARED:
        request.getfixturevalue(_SHARED[name])
    return name
