"""A pool whose two workers are servers of this process."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator

import pytest

import launchpad as lp
from tests.helpers.local_pools import LocalWorkers, gates


@pytest.fixture
def workers() -> Iterator[LocalWorkers]:
    gates.clear()
    gates.update({name: threading.Event() for name in "abc"})
    with tempfile.TemporaryDirectory(prefix="lpt-", dir="/tmp") as folder:
        workers = LocalWorkers(folder, 2)
        yield workers
        workers.close()


@pytest.fixture
def pool(workers: LocalWorkers) -> Iterator[lp.Pool]:
    with lp.pool(workers.clients) as pool:
        yield pool
