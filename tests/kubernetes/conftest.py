"""A real cluster, if there is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from launchpad.launch.backends.kubernetes.api.http_client import Api
from launchpad.launch.backends.kubernetes.settings import Settings


@pytest.fixture
def api(pods_run_this: None) -> Iterator[Api]:
    """The cluster's API, for looking."""
    api = Api(Settings.of({}).namespace)
    yield api
    api.close()
