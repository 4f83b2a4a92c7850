"""A real cluster, if there is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from launchpad.launch.backends.kubernetes.api.client import Cluster
from launchpad.launch.backends.kubernetes.settings import Settings


@pytest.fixture
def api(pods_run_this: None) -> Iterator[Cluster]:
    """The cluster's API, for looking."""
    api = Cluster(Settings.of({}).namespace)
    yield api
    api.close()
