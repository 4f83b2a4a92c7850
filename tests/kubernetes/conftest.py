"""A real cluster, if there is one, and one that is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from launchpad.launch.backends.kubernetes.api.client import Cluster
from launchpad.launch.backends.kubernetes.settings import FILE, Settings
from tests.kubernetes.fake_cluster import FakeCluster


@pytest.fixture
def api(pods_run_this: None) -> Iterator[Cluster]:
    """The cluster's API, for looking."""
    api = Cluster(Settings.of({}).namespace)
    yield api
    api.close()


@pytest.fixture
def nothing_is_set_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE, raising=False)


@pytest.fixture
def cluster(nothing_is_set_outside: None) -> FakeCluster:
    """One that does what a test says."""
    return FakeCluster("mine")
