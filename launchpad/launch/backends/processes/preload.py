"""Modules that are imported once, in the forkserver, and found there by all workers that it forks.

    forkserver    import_all     before the first fork; refuses what a fork would break
    worker        after_fork     as many threads as it may use, random numbers of its own

A fork copies memory, and of the threads only the one that forks; so a module that starts threads when it is
imported, or opens a GPU, cannot be imported before it. OpenBLAS starts its threads when numpy is imported,
unless there is to be only one: so there is, until after the fork.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

_GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")
_STARTS_THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_OPENMP = "OMP_NUM_THREADS"

_THREADS_END_S = 0.5  # how long threads that were joined, or are about to end, may still be there
_LOOK_S = 0.002

sigchld_handler: Any = signal.SIG_DFL
"""Of the modules, which their workers have; the forkserver has its own."""

is_importing = False
"""True while this process imports users' modules for its workers, and must not launch what these launch."""


def import_all(modules: Sequence[str], threads: int) -> str:
    """Imports them in this order; why workers cannot be forked any more, if that is so.

    Args:
        threads: How many OpenMP is to use in threads that a worker starts.
    """
    variables = dict.fromkeys(_STARTS_THREADS, "1") | {_OPENMP: str(threads)}
    with _environment(variables), _importing(), _signals_as_in_any_process():
        for module in modules:
            try:
                importlib.import_module(module)
            except BaseException as error:
                return f"preload={module!r} cannot be imported: {type(error).__name__}: {error}"
            if names := _lasting_threads():
                return (
                    f"preload={module!r} starts threads when it is imported ({', '.join(names)}), which no"
                    " forked process would have. Leave it out: each worker then imports it for itself"
                )
            if device := _open_gpu():
                return (
                    f"preload={module!r} opens {device} when it is imported, which a forked process cannot"
                    " use. Leave it out: each worker then imports it for itself"
                )
    return ""


def after_fork(threads: int) -> None:
    """What differs between the forks of one process, and would be drawn or set when a module is imported."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(threads)
    # From 3.8 on OpenBLAS' limit is changed only by the thread that set it, until that has ended: others are
    # ignored, without a word. The worker's own threads shall be free to.
    openblas = threadpoolctl.OpenBLASController
    if hasattr(openblas, "clear_controlling_thread"):
        openblas.clear_controlling_thread()
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(threads)
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    global is_importing
    is_importing = True
    try:
        yield
    finally:
        is_importing = False


@contextlib.contextmanager
def _signals_as_in_any_process() -> Iterator[None]:
    """Puts aside how the forkserver learns that a worker has ended: modules may use the same themselves."""
    global sigchld_handler
    own_mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    own_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    own_wakeup_fd = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        handler = signal.signal(signal.SIGCHLD, own_handler)
        sigchld_handler = signal.SIG_DFL if handler is None else handler  # None: it is not Python's
        signal.set_wakeup_fd(own_wakeup_fd, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, own_mask)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _lasting_threads() -> list[str]:
    """Return what threads there are, if they do not end within a moment.

    To have joined one is not enough: the system still counts it for some microseconds.
    """
    until = time.monotonic() + _THREADS_END_S
    while (names := _other_threads()) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    return names


def _other_threads() -> list[str]:
    """What threads this process has beside its main one, those of C included."""
    names = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
    with contextlib.suppress(OSError):  # only Linux has it
        in_c = len(os.listdir("/proc/self/task")) - 1 - len(names)
        names += [f"{in_c} in C"] if in_c > 0 else []
    return names


def _open_gpu() -> str:
    """A device of a GPU that this process has open; empty if there is none."""
    with contextlib.suppress(OSError):
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                device = os.readlink(f"/proc/self/fd/{fd}")
                if device.startswith(_GPU_DEVICES):
                    return device
    return ""
