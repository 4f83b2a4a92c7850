"""Where a test of a fault runs: as many backends as the fault may differ on, and no more.

A launch on Ray takes seconds. What is decided by code that all backends share is tried there once.
"""

from __future__ import annotations

import pytest


def on(*launch_types: str) -> pytest.MarkDecorator:
    """The test runs once on each of these."""
    return pytest.mark.parametrize("launch_type", launch_types)


both = on("test_mt", "test_mp")
everywhere = on("test_mt", "test_mp", "test_ray", "test_kubernetes")
processes = on("test_mp", "test_ray", "test_kubernetes")

both_by_script = on("local_mt", "local_mp")
everywhere_by_script = on("local_mt", "local_mp", "ray", "kubernetes")


def is_on_ray(test: pytest.Item) -> bool:
    """Whether a test launches on the Ray cluster that all of them share."""
    is_on = not {"ray", "test_ray"}.isdisjoint(_given(test))
    return is_on or "ray_cluster" in getattr(test, "fixturenames", ())


def is_on_spark(test: pytest.Item) -> bool:
    """Whether a test launches on Spark, itself or by a script."""
    return "spark" in _given(test) or is_launched_on_spark_by_the_test(test)


def is_launched_on_spark_by_the_test(test: pytest.Item) -> bool:
    """Whether a test launches on the Spark that all of them share."""
    return "test_spark" in _given(test) or "spark_context" in getattr(test, "fixturenames", ())


ON_KUBERNETES = {"benchmarks", "contract", "examples", "faults", "kubernetes"}
"""The folders in which .ci/on_a_cluster looks for tests."""


def is_on_kubernetes(test: pytest.Item) -> bool:
    """Whether a test launches on a Kubernetes cluster."""
    is_on = not {"kubernetes", "test_kubernetes"}.isdisjoint(_given(test))
    return is_on or "cluster_settings" in getattr(test, "fixturenames", ())


def is_launched_by_the_test(test: pytest.Item) -> bool:
    """Whether a test launches on a cluster itself, not by a script of its own."""
    return "test_kubernetes" in _given(test)


def _given(test: pytest.Item) -> list[str]:
    parameters = getattr(getattr(test, "callspec", None), "params", {})
    return [value for value in parameters.values() if isinstance(value, str)]
