"""The SparkContext of launches: the script's own, else one that the first launch makes and the last stops.

A SparkContext that is made in the main thread sets a handler with which Ctrl-C cancels all jobs, and so also
kills the hosts of workers. But Ctrl-C should ask the program to stop. So launchpad makes its context in
another thread. If the script has made a context, launchpad gives Ctrl-C back its meaning in Python.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from concurrent.futures import Future
from typing import Any

from launchpad.courier import extras
from launchpad.errors import LaunchError
from launchpad.launch.planning import interpreter

_SETTLED_S = 3.0
"""Seconds without a new executor after which no more are expected."""

_SETTINGS = {
    "spark.app.name": "launchpad",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",  # a program runs for long, and prints its own lines
}

_SHELL = {"spark.app.name": "pyspark-shell", "spark.ui.showConsoleProgress": "true"}
"""The values that pyspark sets by itself if the user has not set any."""

# Held while a context is made or stopped. Several threads may launch at once. Without the lock, two of them
# could both make a context, or one could stop the context that another has just been given.
_lock = threading.Lock()
_users = 0
_ours: Any = None


def load() -> Any:
    """Import and return the package `pyspark`.

    Raises:
        LaunchError: pyspark is not installed, or only its part without Spark.
    """
    try:
        import pyspark.core.context
    except ImportError as error:
        raise LaunchError(
            f"launch type 'spark' needs Spark, which cannot be imported here ({error}):"
            f" {extras.install_command('spark')}"
        ) from error
    return pyspark


def connect() -> Any:
    """Return the active SparkContext, or make a new one.

    A new context takes its master from $SPARK_MASTER. Without this variable, the context gets its master as
    in any script of pyspark: from `spark-submit` or the configuration, else `local[*]`, which is a Spark on
    this machine.

    Raises:
        LaunchError: there is no Java, or no Spark could be started or reached.
    """
    global _users, _ours
    context_class = load().SparkContext
    with _lock:
        if context_class._active_spark_context is None:
            _ours = _new_context(context_class)
        elif (
            threading.current_thread() is threading.main_thread()
            and getattr(signal.getsignal(signal.SIGINT), "__module__", "")
            == context_class.__module__
        ):
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _users += 1
        return context_class._active_spark_context


def release() -> None:
    """Undo one call of `connect`. The last release stops the SparkContext if launchpad has made it."""
    global _users, _ours
    with _lock:
        _users -= 1
        if _users == 0 and _ours is not None:
            ours = _ours
            _ours = None
            with contextlib.suppress(Exception):  # its Java has ended
                ours.stop()


def check(context: Any) -> None:
    """Raise LaunchError if the context was stopped."""
    if context._jsc is None:
        raise LaunchError("its SparkContext has been stopped")


def slots(context: Any) -> int:
    """Return how many tasks the present executors can run at the same time if no other tasks run."""
    scala = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    return int(scala.maxNumConcurrentTasks(profile))


def is_fixed(context: Any) -> bool:
    """Return True if the slots are threads of this process's Java, so that their number never changes."""
    return bool(context.master == "local" or context.master.startswith("local["))


def is_settled(context: Any) -> bool:
    """Return True if no more executors are expected."""
    last = max(executor.addTime().getTime() / 1000 for executor in _executors(context))
    return is_fixed(context) or time.time() - last > _SETTLED_S


def running_tasks(context: Any) -> int:
    """Return how many tasks of all jobs run now."""
    return sum(int(executor.activeTasks()) for executor in _executors(context))


def other_hosts(context: Any) -> set[str]:
    """Return the hosts of executors other than this host."""
    names = (str(executor.hostPort()) for executor in _executors(context) if executor.hostPort())
    hosts = {name.rpartition(":")[0].strip("[]") for name in names}
    return {host for host in hosts if host and not is_here(host)}


def is_here(host: str) -> bool:
    """Return True if `host` is a name or an address of this host."""
    addresses = []
    with contextlib.suppress(OSError):
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    for family, kind, protocol, _, address in addresses:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            # Only an address of this host can be bound.
            probe.bind(address)
            return True
    return False


def look_at(context: Any) -> str:
    """Return a hint that says where to see what the executors do."""
    ui = context.uiWebUrl
    return f"look at the Spark UI, {ui}" if ui else f"look at its master, {context.master}"


def _executors(context: Any) -> list[Any]:
    """Return the executors that are alive, and the driver, as Spark's own UI lists them."""
    listed = context._jsc.sc().statusStore().executorList(True)
    return [listed.apply(i) for i in range(listed.size())]


def _new_context(context_class: Any) -> Any:
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    installed = os.environ.get("JAVA_HOME")
    java = os.path.join(installed, "bin", "java") if installed else "java"
    if not is_submitted and shutil.which(java) is None:
        raise LaunchError(
            f"launch type 'spark' needs Java 17 or newer, and there is no {java!r} here: install a JRE"
            " (`apt install openjdk-17-jre-headless`, `brew install openjdk@17`), or have JAVA_HOME say"
            " where it is"
        )
    if "SPARK_REMOTE" in os.environ or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        raise LaunchError(
            "launch type 'spark' cannot be used through Spark Connect, since this process would be outside"
            " of the cluster: unset SPARK_REMOTE, and say where the master is: SPARK_MASTER=spark://HOST:7077"
        )
    interpreter.check_executable("Spark")
    # py4j would log each connection that it closes.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    future = Future[Any]()

    def make() -> None:
        try:
            # This reads the configuration's files.
            context_class._ensure_initialized()
            conf = load().SparkConf()
            master = os.environ.get("SPARK_MASTER")
            if master and not is_submitted:
                conf.setMaster(master)
            for name, value in _SETTINGS.items():
                if conf.get(name) in (None, _SHELL.get(name)):
                    conf.set(name, value)
            context = context_class(conf=conf)
            if context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
                # By default it would be whatever `python3` is.
                context.pythonExec = sys.executable
            future.set_result(context)
        except BaseException as error:
            future.set_exception(error)

    maker = threading.Thread(target=make, name="launchpad-spark", daemon=True)
    maker.start()
    maker.join()
    error = future.exception()
    if error is not None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        first = next((line for line in lines if "Exception: " in line), (lines or [repr(error)])[0])
        raise LaunchError(
            f"no Spark could be started or reached, with SPARK_MASTER={os.environ.get('SPARK_MASTER')}:"
            f" {first}. It needs Java 17 or newer (`java -version`), and a master that answers"
        ) from error
    return future.result()
