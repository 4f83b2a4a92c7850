"""Stopping a program from inside: what a node's code may call, from any of its threads."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from launchpad.courier.telemetry import tracing
from launchpad.runtime import context
from launchpad.runtime.events import StopRequested

P = ParamSpec("P")
T = TypeVar("T")


def stop(reason: str = "") -> None:
    """Stops the whole program: it ends as succeeded, exit code 0.

    Returns at once; the supervisor then asks every worker to stop, this one included. Works from any
    thread of a worker, also while it answers a call. A second call changes nothing.

    Example:
        def run(self):
          train()
          lp.stop()

    Raises:
        NotRunningError: outside of workers; in a forked child of one that is a thread.
    """
    me = context.current()
    _refuse_in_child_of_thread(me, "lp.stop()")
    me.link.report(StopRequested(me.name, str(reason)))


def heartbeat() -> None:
    """Says that this worker makes progress.

    Where its `RestartPolicy` has `heartbeat_s`, a worker that has not called this for so long has its stacks
    written to its log, and counts as failed. Elsewhere it does nothing. It sends no more than a few
    messages in that time, so call it in each step.

    Example:
        with program.group("trainer", restart=lp.RestartPolicy(heartbeat_s=60)):
          program.add_node(lp.PyNode(train))    # in train, for each batch: step(batch); lp.heartbeat()

    Raises:
        NotRunningError: outside of workers; in a forked child of one that is a thread.
    """
    me = context.current()
    _refuse_in_child_of_thread(me, "lp.heartbeat()")
    me.link.heartbeat()


def stop_event() -> threading.Event:
    """The event that is set when this worker is asked to stop. It is never set in a forked child.

    Example:
        while not lp.stop_event().is_set():
          step()
    """
    me = context.current()
    me.stop.is_watched = True
    return me.stop.event


def wait_for_stop(timeout_secs: float | None = None) -> bool:
    """Blocks until this worker is asked to stop; False when the time is up before that.

    Example:
        while not lp.wait_for_stop(timeout_secs=60.0):
            write_report()                          # each minute

    Raises:
        NotRunningError: outside of workers, and in a forked child of one, which is not asked.
    """
    context.current().link.refuse_in_child(
        "lp.wait_for_stop()",
        "The child ends with the worker's process, or when the worker ends it.",
    )
    with tracing.Wait("wait_for_stop"):
        return stop_event().wait(timeout_secs)


def register_stop_handler(handler: Callable[[], None]) -> None:
    """Calls `handler` (no arguments, in a thread of launchpad's) when this worker is asked to stop.

    Example:
        lp.register_stop_handler(server.shutdown)
        server.serve_forever()                      # returns when the program stops

    Raises:
        TypeError: it is an async function, whose call would do nothing.
    """
    if inspect.iscoroutinefunction(handler):
        raise TypeError(
            f"a stop handler is a plain function, and {handler!r} is async; an async run() need not ask for"
            " the stop: it is cancelled, and its `finally` blocks run"
        )
    context.current().stop.add_handler(handler)


def unregister_stop_handler(handler: Callable[[], None]) -> None:
    """Removes a handler that was given to `register_stop_handler`.

    Example:
        lp.register_stop_handler(download.cancel)
        download.wait()
        lp.unregister_stop_handler(download.cancel)
    """
    context.current().stop.remove_handler(handler)


def on_exit(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Callable[P, T]:
    """Calls `function(*args, **kwargs)` when this worker's attempt has ended in good order.

    That is when `run()` has returned or the program stops: after the last call that others make, and after
    the object has saved itself. The last function given is called first, as by `contextlib.ExitStack`, in
    the worker's thread; a coroutine runs on the event loop of its async methods. One that raises makes the
    attempt a failure, and the others are called all the same. After a failure or a kill none is called.
    The `close()` of a worker's object, or its `__aexit__` or `__exit__`, is called without having been given.

    Example:
        class Table:
            def __init__(self, path):
                self.db = sqlite3.connect(path)
                lp.on_exit(self.db.close)

    Returns:
        The function: so it is a decorator, too.

    Raises:
        NotRunningError: outside of workers, and in a forked child of one.
        TypeError: it cannot be called.
    """
    me = context.current()
    me.link.refuse_in_child("lp.on_exit()", "In the child use `try` and `finally`.")
    if not callable(function):
        raise TypeError(f"on_exit takes a function and its arguments, got {function!r}")
    me.exits.add(functools.partial(function, *args, **kwargs))
    return function


def _refuse_in_child_of_thread(me: context.RunContext, what: str) -> None:
    """Raises where what is reported would reach no supervisor: its queue is one between threads."""
    if not context.is_a_process(me):
        me.link.refuse_in_child(what, "Call it there.")
