"""`spark`: the backend. Its workers are in `workers`."""

from __future__ import annotations

from collections.abc import Callable

from launchpad.address import COURIER
from launchpad.courier.checks import is_whole
from launchpad.errors import DefinitionError
from launchpad.launch.backends.backend import Backend, Workers
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.runtime.events import Event

_TIMEOUT_S = 120.0


class Spark(Backend):
    """The backend for programs that work beside Spark's data, on the executors of its cluster.

    Args:
        hosts: The most of the application's slots that the launch takes, for a task each. None means one for
            each worker, or all slots if there are fewer.
        host_timeout_s: How long the launch waits until all of these tasks run.
    """

    def __init__(self, hosts: int | None = None, host_timeout_s: float = _TIMEOUT_S) -> None:
        if hosts is not None and not is_whole(hosts, at_least=1):
            raise DefinitionError(f"hosts={hosts!r}: expected a whole number of 1 or more, or None")
        self._hosts = hosts
        self._timeout_s = host_timeout_s

    def endpoint(self, address: str, kind: str) -> str:
        """Return a template: Spark decides on the node, where the worker then takes a free port."""
        return "tcp:{node}:0" if kind == COURIER else "{node}:0"

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Connect to the SparkContext, which the script may have made, and prepare the workers."""
        from launchpad.launch.backends.spark.workers import SparkWorkers

        return SparkWorkers(plan, run, report, self._hosts, self._timeout_s)


class TestSpark(Spark):
    """`test_spark`: the same as `spark`, for unit tests."""

    __test__ = False  # pytest would take it for a test case
    is_test = True
