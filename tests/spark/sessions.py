"""A Spark on this machine for tests: a master and two executors, processes of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

N_SLOTS = 4
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java, for what runs no longer than a test."""

VARIABLES = {"PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": _QUICK}
SETTINGS = {
    "spark.master": "local-cluster[2,2,1024]",
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.app.name": "tests",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.python.worker.reuse": "false",  # a process that waits for the next task is not left over
}


def skip_without_spark() -> None:
    """Skips the test where there is no pyspark or no Java."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Any]:
    """A SparkContext with two executors, each of which has run a task; its files are in the folder."""
    from launchpad.launch.backends.spark import session
    from tests.waiting import until

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark's own
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        patch.setenv("SPARK_WORKER_DIR", str(folder))
        patch.setenv("SPARK_LOCAL_DIRS", str(folder))
        from pyspark import SparkConf, SparkContext

        context = SparkContext(conf=SparkConf().setAll(list(SETTINGS.items())))
        try:
            until(lambda: session.slots(context) == N_SLOTS, within_s=120)
            tasks = context.parallelize(range(N_SLOTS), N_SLOTS).barrier()
            tasks.mapPartitions(lambda rows: rows).collect()  # so there is pyspark's daemon in each
            yield context
        finally:
            context.stop()
