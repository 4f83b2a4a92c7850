"""A script that sets what it can, and looks at it: itself, in a thread, and in a process.

It prints a JSON object: thing → what was there before, and what the script, a thread and a process see when
it is set. The names of the things are those of the tables in docs/what_a_worker_has.md.
"""

from __future__ import annotations

import asyncio
import builtins
import codecs
import copyreg
import csv
import decimal
import faulthandler
import gc
import importlib.util
import json
import locale
import logging
import mimetypes
import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import launchpad as lp
from tests.helpers import configured


class Mine:
    """A class of the script."""


class Finder:
    """Finds no module."""

    @classmethod
    def find_spec(cls, *args: object) -> None:
        return None


class Policy(asyncio.DefaultEventLoopPolicy):
    """Makes event loops for the script."""


class MyLogger(logging.Logger):
    """Makes loggers for the script."""


class Output:
    """Passes on what is printed."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def hook(*args: Any) -> None:
    """Does nothing."""


def trace_threads(*args: Any) -> None:
    """Does nothing, either."""


def report(*args: Any) -> None:
    """Reports an exception as Python does."""
    sys.__excepthook__(*args)


def make_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    return logging.LogRecord(*args, **kwargs)


def limit_queues() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (4096, hard))


def set_time_zone() -> None:
    os.environ["TZ"] = "UTC-3"
    time.tzset()


def umask() -> int:
    mask = os.umask(0o022)  # there is no other way to read it
    os.umask(mask)
    return mask


def stack_size() -> int:
    size = threading.stack_size()  # which sets it to 0
    threading.stack_size(size)
    return size


def add_handler() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("mine: %(message)s"))
    logging.getLogger().addHandler(handler)


def formats() -> list[str | None]:
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    return [None if each is None else each._fmt for each in formatters]


def encoded() -> str:
    try:
        return "ä".encode("ascii", errors="mine").decode()
    except LookupError as error:
        return str(error)


def is_named(value: Any, name: str) -> bool:
    return getattr(value, "__qualname__", "") == name


class Thing(NamedTuple):
    """Something that a script can set."""

    name: str
    set: Callable[[], object]
    look: Callable[[], object]


def attribute(name: str, owner: Any, attribute: str, value: object) -> Thing:
    """Returns a thing that is set by an assignment."""
    return Thing(
        name,
        lambda: setattr(owner, attribute, value),
        lambda: is_named(getattr(owner, attribute), getattr(value, "__qualname__", "")),
    )


THINGS = [
    Thing("`sys.argv`", lambda: sys.argv.append("more"), lambda: sys.argv[1:]),
    Thing("`sys.path`", lambda: sys.path.append("/usr/share"), lambda: "/usr/share" in sys.path),
    Thing("`os.environ`", lambda: os.environ.update(MINE="3"), lambda: os.environ.get("MINE")),
    Thing("the working directory", lambda: os.chdir("/usr"), os.getcwd),
    Thing("umask", lambda: os.umask(0o026), umask),
    Thing("niceness", lambda: os.nice(3), lambda: os.nice(0)),
    Thing("limits (`ulimit`)", limit_queues, lambda: resource.getrlimit(resource.RLIMIT_MSGQUEUE)),
    Thing(
        "ignored signals",
        lambda: signal.signal(signal.SIGWINCH, signal.SIG_IGN),
        lambda: signal.getsignal(signal.SIGWINCH).name,
    ),
    Thing(
        "the time zone (`time.tzset`)",
        set_time_zone,
        lambda: (time.timezone, time.localtime(0).tm_hour),
    ),
    Thing(
        "`locale.setlocale`",
        lambda: locale.setlocale(locale.LC_NUMERIC, "C.UTF-8"),
        lambda: locale.setlocale(locale.LC_NUMERIC),
    ),
    Thing("`sys.setrecursionlimit`", lambda: sys.setrecursionlimit(1234), sys.getrecursionlimit),
    Thing(
        "`sys.set_int_max_str_digits`",
        lambda: sys.set_int_max_str_digits(5000),
        sys.get_int_max_str_digits,
    ),
    Thing("`sys.setswitchinterval`", lambda: sys.setswitchinterval(0.002), sys.getswitchinterval),
    Thing(
        "`sys.dont_write_bytecode`",
        lambda: setattr(sys, "dont_write_bytecode", True),
        lambda: sys.dont_write_bytecode,
    ),
    Thing(
        "`sys.tracebacklimit`",
        lambda: setattr(sys, "tracebacklimit", 50),
        lambda: getattr(sys, "tracebacklimit", None),
    ),
    Thing("`gc.set_threshold`", lambda: gc.set_threshold(900, 11, 12), gc.get_threshold),
    Thing("`gc.disable`", gc.disable, gc.isenabled),
    Thing("`threading.stack_size`", lambda: threading.stack_size(2**20), stack_size),
    Thing("`faulthandler.enable`", faulthandler.enable, faulthandler.is_enabled),
    Thing(
        "`socket.setdefaulttimeout`",
        lambda: socket.setdefaulttimeout(77),
        socket.getdefaulttimeout,
    ),
    Thing(
        "`csv.field_size_limit`",
        lambda: csv.field_size_limit(2000),
        lambda: csv.field_size_limit(),
    ),
    Thing(
        "`decimal.DefaultContext`",
        lambda: setattr(decimal.DefaultContext, "prec", 50),
        lambda: decimal.DefaultContext.prec,
    ),
    Thing(
        "`multiprocessing.set_start_method`",
        lambda: multiprocessing.set_start_method("spawn"),
        lambda: multiprocessing.get_start_method(allow_none=True),
    ),
    Thing(
        "the `authkey` of multiprocessing",
        lambda: setattr(multiprocessing.current_process(), "authkey", b"key"),
        lambda: bytes(multiprocessing.current_process().authkey) == b"key",
    ),
    Thing(
        "filters of `warnings`",
        lambda: warnings.filterwarnings("error", "of mine"),
        lambda: [each[0] for each in warnings.filters].count("error"),
    ),
    Thing(
        "levels of loggers",
        lambda: logging.getLogger("of mine").setLevel(logging.ERROR),
        lambda: logging.getLogger("of mine").level,
    ),
    Thing(
        "`Logger.disabled`",
        lambda: setattr(logging.getLogger("of mine"), "disabled", True),
        lambda: logging.getLogger("of mine").disabled,
    ),
    Thing(
        "filters of loggers",
        lambda: logging.getLogger("of mine").addFilter(lambda record: False),
        lambda: len(logging.getLogger("of mine").filters),
    ),
    Thing("handlers of loggers", add_handler, formats),
    Thing("`logging.disable`", lambda: logging.disable(5), lambda: logging.root.manager.disable),
    Thing(
        "`logging.captureWarnings`",
        lambda: logging.captureWarnings(True),
        lambda: warnings.showwarning.__module__,
    ),
    Thing(
        "`logging.addLevelName`",
        lambda: logging.addLevelName(logging.WARNING, "Careful"),
        lambda: logging.getLevelName(logging.WARNING),
    ),
    Thing(
        "`logging.raiseExceptions`",
        lambda: setattr(logging, "raiseExceptions", False),
        lambda: logging.raiseExceptions,
    ),
    # --- of one thread
    Thing(
        "decimal's current context",
        lambda: setattr(decimal.getcontext(), "rounding", "ROUND_UP"),
        lambda: decimal.getcontext().rounding,
    ),
    Thing(
        "context variables",
        lambda: configured.NUMBER.set(3),
        lambda: configured.NUMBER.get(),
    ),
    Thing(
        "`sys.settrace`",
        lambda: sys.settrace(hook),
        lambda: is_named(sys.gettrace(), "hook"),
    ),
    Thing(
        "`sys.setprofile`",
        lambda: sys.setprofile(hook),
        lambda: is_named(sys.getprofile(), "hook"),
    ),
    # --- of the script only
    Thing(
        "variables of modules",
        lambda: setattr(configured, "DEBUG", True),
        lambda: configured.DEBUG,
    ),
    Thing(
        "functions of modules",
        lambda: setattr(configured, "greet", lambda: "hi"),
        lambda: configured.greet(),
    ),
    Thing(
        "encoders of `json`",
        lambda: setattr(json.JSONEncoder, "default", hook),
        lambda: is_named(json.JSONEncoder.default, "hook"),
    ),
    Thing(
        "names in `builtins`",
        lambda: setattr(builtins, "mine", "mine"),
        lambda: hasattr(builtins, "mine"),
    ),
    Thing(
        "names in `sys.modules`",
        lambda: sys.modules.update(mine=json),
        lambda: "mine" in sys.modules,
    ),
    Thing(
        "entries of registries",
        lambda: configured.register("mine")(Mine),
        lambda: sorted(configured.MODELS),
    ),
    Thing(
        "`functools.singledispatch`",
        lambda: configured.describe.register(int, lambda value: "a number"),
        lambda: configured.describe(3),
    ),
    Thing(
        "`abc.ABCMeta.register`",
        lambda: configured.Base.register(Mine),
        lambda: issubclass(Mine, configured.Base),
    ),
    Thing(
        "`codecs.register_error`",
        lambda: codecs.register_error("mine", lambda error: ("ae", error.end)),
        encoded,
    ),
    Thing(
        "`mimetypes.add_type`",
        lambda: mimetypes.add_type("mine/mine", ".mine"),
        lambda: mimetypes.guess_type("a.mine")[0],
    ),
    Thing(
        "`copyreg.pickle`",
        lambda: copyreg.pickle(Mine, lambda mine: (Mine, ())),
        lambda: any(is_named(kind, "Mine") for kind in copyreg.dispatch_table),
    ),
    Thing(
        "`sys.meta_path`",
        lambda: sys.meta_path.append(Finder),
        lambda: any(is_named(each, "Finder") for each in sys.meta_path),
    ),
    Thing(
        "`sys.path_hooks`",
        lambda: sys.path_hooks.append(hook),
        lambda: any(is_named(each, "hook") for each in sys.path_hooks),
    ),
    Thing(
        "`tempfile.tempdir`",
        lambda: setattr(tempfile, "tempdir", "/usr"),
        tempfile.gettempdir,
    ),
    Thing(
        "`sys.stdout`",
        lambda: setattr(sys, "stdout", Output(sys.stdout)),
        lambda: hasattr(sys.stdout, "stream"),
    ),
    attribute("`sys.excepthook`", sys, "excepthook", report),
    attribute("`sys.unraisablehook`", sys, "unraisablehook", hook),
    attribute("`sys.breakpointhook`", sys, "breakpointhook", hook),
    attribute("`threading.excepthook`", threading, "excepthook", hook),
    Thing(
        "`threading.settrace`",
        lambda: threading.settrace(trace_threads),
        lambda: is_named(threading.gettrace(), "trace_threads"),
    ),
    Thing(
        "`threading.setprofile`",
        lambda: threading.setprofile(trace_threads),
        lambda: is_named(threading.getprofile(), "trace_threads"),
    ),
    Thing(
        "handlers of signals",
        lambda: signal.signal(signal.SIGALRM, hook),
        lambda: is_named(signal.getsignal(signal.SIGALRM), "hook"),
    ),
    Thing(
        "`signal.setitimer`",
        lambda: signal.setitimer(signal.ITIMER_REAL, 3600),
        lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0,
    ),
    Thing(
        "`asyncio.set_event_loop_policy`",
        lambda: asyncio.set_event_loop_policy(Policy()),
        lambda: is_named(type(asyncio.get_event_loop_policy()), "Policy"),
    ),
    Thing(
        "`logging.setLoggerClass`",
        lambda: logging.setLoggerClass(MyLogger),
        lambda: is_named(logging.getLoggerClass(), "MyLogger"),
    ),
    Thing(
        "`logging.setLogRecordFactory`",
        lambda: logging.setLogRecordFactory(make_record),
        lambda: is_named(logging.getLogRecordFactory(), "make_record"),
    ),
    Thing("`tracemalloc.start`", tracemalloc.start, tracemalloc.is_tracing),
    Thing(
        "`sys.setdlopenflags`",
        lambda: sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL),
        sys.getdlopenflags,
    ),
    Thing("`random.seed`", lambda: random.seed(3), lambda: configured.is_seeded_with_3(random)),
]

if importlib.util.find_spec("numpy") is not None:
    import numpy as np

    THINGS += [
        Thing(
            "`numpy.set_printoptions`",
            lambda: np.set_printoptions(precision=3),
            lambda: np.get_printoptions()["precision"],
        ),
        Thing("`numpy.seterr`", lambda: np.seterr(all="raise"), lambda: np.geterr()["divide"]),
        Thing(
            "`numpy.random.seed`",
            lambda: np.random.seed(3),
            lambda: int(np.random.get_state()[1][0]) == 3,
        ),
    ]
if importlib.util.find_spec("gymnasium") is not None:
    import gymnasium

    THINGS += [
        Thing(
            "`gymnasium.register`",
            lambda: gymnasium.register("Mine-v0", entry_point=Mine),
            lambda: "Mine-v0" in gymnasium.registry,
        )
    ]
if importlib.util.find_spec("torch") is not None:
    import torch

    THINGS += [
        Thing(
            "`torch.set_default_dtype`",
            lambda: torch.set_default_dtype(torch.float64),
            lambda: str(torch.get_default_dtype()),
        )
    ]


def look(looks: Mapping[str, Callable[[], object]]) -> dict[str, str]:
    return {name: repr(see()) for name, see in looks.items()}


if __name__ == "__main__":
    looks = {thing.name: thing.look for thing in THINGS}
    program = lp.Program("things")
    program.add_node(lp.PyNode(look, looks), label="look")
    seen = [look(looks)]
    for thing in THINGS:
        thing.set()
    seen.append(look(looks))
    for launch_type in ("local_mt", "local_mp"):
        seen += lp.run(program, launch_type)["look"]
    print("seen", json.dumps({name: [each[name] for each in seen] for name in looks}))
