"""Functions with which a node's code stops the program, or watches for its stop, from any thread."""

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
    """Stop the whole program. The program ends as succeeded, with exit code 0.

    Returns at once; the supervisor then asks every worker to stop, including this one. Works from any
    thread of a worker, also while it answers a call. A second call has no effect.

    Example:
        def run(self):
          train()
          lp.stop()

    Raises:
        NotRunningError: called outside a worker, or in a forked child of a worker that is a thread.
    """
    me = context.current()
    _refuse_in_child_of_thread(me, "lp.stop()")
    me.link.report(StopRequested(me.name, str(reason)))


def heartbeat() -> None:
    """Report that this worker makes progress.

    If the worker's `RestartPolicy` has `heartbeat_s`, and the worker doesn't call this for that many seconds,
    its stacks are written to its log, it is killed, and it counts as failed. Without `heartbeat_s`, this does
    nothing. It sends only a few messages in those seconds, so you can call it in each step.

    Example:
        with program.group("trainer", restart=lp.RestartPolicy(heartbeat_s=60)):
          program.add_node(lp.PyNode(train))    # in train, for each batch: step(batch); lp.heartbeat()

    Raises:
        NotRunningError: called outside a worker, or in a forked child of a worker that is a thread.
    """
    me = context.current()
    _refuse_in_child_of_thread(me, "lp.heartbeat()")
    me.link.heartbeat()


def stop_event() -> threading.Event:
    """Return the event that is set when this worker is asked to stop. It is never set in a forked child.

    A worker that called this watches for the stop: it is not interrupted until its grace period is over.

    Example:
        while not lp.stop_event().is_set():
          step()
    """
    me = context.current()
    me.stop.is_watched = True
    return me.stop.event


def wait_for_stop(timeout_secs: float | None = None) -> bool:
    """Block until this worker is asked to stop; return False if the time is up first.

    Example:
        while not lp.wait_for_stop(timeout_secs=60.0):
            write_report()                          # each minute

    Raises:
        NotRunningError: called outside a worker, or in a forked child of one, which is never asked to stop.
    """
    context.current().link.refuse_in_child(
        "lp.wait_for_stop()",
        "The child ends with the worker's process, or when the worker ends it.",
    )
    with tracing.Wait("wait_for_stop"):
        return stop_event().wait(timeout_secs)


def register_stop_handler(handler: Callable[[], None]) -> None:
    """Call `handler` (no arguments, in a thread of launchpad) when this worker is asked to stop.

    Example:
        lp.register_stop_handler(server.shutdown)
        server.serve_forever()                      # returns when the program stops

    Raises:
        TypeError: `handler` is an async function, which a plain call would not run.
    """
    if inspect.iscoroutinefunction(handler):
        raise TypeError(
            f"a stop handler is a plain function, and {handler!r} is async; an async run() need not ask for"
            " the stop: it is cancelled, and its `finally` blocks run"
        )
    context.current().stop.add_handler(handler)


def unregister_stop_handler(handler: Callable[[], None]) -> None:
    """Remove a handler that was given to `register_stop_handler`.

    Example:
        lp.register_stop_handler(download.cancel)
        download.wait()
        lp.unregister_stop_handler(download.cancel)
    """
    context.current().stop.remove_handler(handler)


def on_exit(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Callable[P, T]:
    """Call `function(*args, **kwargs)` when this worker's attempt has ended cleanly.

    An attempt ends cleanly when `run()` has returned or the program stops. The functions are called after the
    last call from other nodes, and after the object has saved itself. They run in the worker's thread, the
    last one given first, as with `contextlib.ExitStack`. A coroutine runs on the event loop of the object's
    async methods. If a function raises, the attempt counts as a failure, and the others are still called.
    After a failure or a kill, no function is called. The object's `close()`, or else its `__aexit__` or
    `__exit__`, is called anyway, so don't pass it.

    Example:
        class Table:
            def __init__(self, path):
                self.db = sqlite3.connect(path)
                lp.on_exit(self.db.close)

    Returns:
        The function, so that this works as a decorator, too.

    Raises:
        NotRunningError: called outside a worker, or in a forked child of one.
        TypeError: `function` cannot be called.
    """
    me = context.current()
    me.link.refuse_in_child("lp.on_exit()", "In the child use `try` and `finally`.")
    if not callable(function):
        raise TypeError(f"on_exit takes a function and its arguments, got {function!r}")
    me.exits.add(functools.partial(function, *args, **kwargs))
    return function


def _refuse_in_child_of_thread(me: context.RunContext, feature: str) -> None:
    """Raise in a forked child of a worker that is a thread: its reports would reach no supervisor.

    They would go through a queue between threads of the parent.
    """
    if not context.is_a_process(me):
        me.link.refuse_in_child(feature, "Call it there.")
