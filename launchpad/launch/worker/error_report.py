"""The report on the exception with which a worker failed."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace

import launchpad
from launchpad import courier, outcome
from launchpad.courier import formatting
from launchpad.errors import DoNotRestart, PeerFailed
from launchpad.launch.planning import payload
from launchpad.outcome import Outcome

_PACKAGE = os.path.dirname(os.path.abspath(launchpad.__file__)) + os.sep
_NOT_THEIRS = (_PACKAGE, payload.PICKLER)
_NOT_REGISTERED = ("NameNotFound", "NamespaceNotFound", "UnregisteredEnv")
"""The names of gymnasium's and gym's errors for an environment that they do not know."""

_LONGEST_LINE = 2000
_LONGEST = 100_000
"""The most characters of an exception's one-line description, and of its traceback. Both may hold data."""

_NO_MEMORY = ("cannot map zero-fill pages", "annot allocate memory")
_NO_MEMORY_WHERE_LIMITED = (
    "failed to map segment from shared object",
    "can't start new thread",
    "without exception set",  # from C code, CPython's own too, that ignores a failed malloc
    "without setting an exception",
)


def explained(end: Outcome, error: BaseException, memory_bytes: int | None = None) -> Outcome:
    """Return the outcome, completed with all that the error explains.

    Args:
        memory_bytes: How much memory the worker may have, if that is limited.
    """
    limits = [memory_bytes, resource.getrlimit(resource.RLIMIT_DATA)[0]]
    finite_limits = [n for n in limits if n is not None and n != resource.RLIM_INFINITY]
    is_of_memory = is_out_of_memory(error, bool(finite_limits))
    if isinstance(error, SystemExit):
        has_opted_out = error.code in outcome.NO_RESTART_CODES
    else:
        has_opted_out = any(isinstance(cause, DoNotRestart) for cause in _causes(error))
    remote = [cause for cause in _causes(error) if isinstance(cause, courier.RemoteTraceback)]
    server = error.server if isinstance(error, courier.CourierError) else ""
    raised_in = remote[-1].origin if remote else server
    hint = ""
    if is_of_memory and raised_in:
        hint = f"{raised_in} had no memory for a call"
    elif is_of_memory:
        unit = 1 if sys.platform == "darwin" else 1024
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        hint = f"the peak memory of its process was {formatting.size(peak_bytes)}"
        if finite_limits:
            hint += (
                f"; its Resources(memory=…), or `ulimit -d`, allows it {formatting.size(min(finite_limits))},"
                " with the stacks of its threads"
            )
        else:
            hint += "; see also `ulimit -v`"
    elif any(map(_is_of_debugger, _causes(error))):
        hint = (
            "a debugger had no terminal to read from: run the script in one, with"
            " --lp_launch_type=local_mt, where workers are its threads"
        )
    elif type(error).__name__ in _NOT_REGISTERED or _may_be_of_a_registry(error):
        hint = (
            "what a script registers is not registered in a worker that is a process: lp.Program(…, setup=f)"
            " has f called there first"
        )
    elif isinstance(error, ImportError):
        hint = (
            f"the worker looked in sys.path = {sys.path};"
            " install the module there, or launch from its folder"
        )
    absent = (courier.WorkerFailed, courier.OutcomeUnknown, courier.NotSent)
    names = (
        cause.worker if isinstance(cause, PeerFailed) else cause.server
        for cause in _causes(error)
        if isinstance(cause, (PeerFailed, *absent))
    )
    return replace(
        end,
        error_type=payload.qualified(type(error)),
        may_restart=not has_opted_out,
        traceback=trimmed_traceback(error),
        hint=hint,
        blames=next(names, ""),
        raised_in=raised_in,
        out_of_memory=is_of_memory,
    )


def _is_of_debugger(error: BaseException) -> bool:
    """Return True if pdb raised this at the end of its input: a SystemExit since 3.14, a BdbQuit before."""
    frames = traceback.walk_tb(error.__traceback__)
    is_in_pdb = any(frame.f_globals.get("__name__") == "pdb" for frame, _ in frames)
    return type(error).__name__ == "BdbQuit" or (isinstance(error, SystemExit) and is_in_pdb)


def _may_be_of_a_registry(error: BaseException) -> bool:
    """Return True if a registry may lack an entry: the registry of codecs, or of an installed module."""
    if type(error) is LookupError:
        return str(error).startswith("unknown e")  # encoding, or error handler name
    if type(error) is not KeyError or not isinstance(next(iter(error.args), None), str):
        return False
    module = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "").partition(".")[0]
    own = launchpad.__name__
    return module not in ("", "__main__", own) and module not in sys.stdlib_module_names


def describe(error: BaseException) -> str:
    """Return the error in one line, `ValueError: boom`, without empty lines at the start of its message."""
    lines = "".join(traceback.format_exception_only(error)).split("\n")
    first, *more = (line.strip() for line in lines if line.strip())
    text = f"{first} {more[0]}" if first.endswith(":") and more else first
    return formatting.shortened(text, _LONGEST_LINE)


def trimmed_traceback(error: BaseException) -> str:
    """Return the traceback with its causes, but without launchpad's frames, which don't concern the user."""
    root = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = root
    visited: set[int] = set()
    while part is not None and id(part) not in visited:
        visited.add(id(part))
        files = [frame.filename for frame in part.stack]
        user_frames = [frame for frame in part.stack if not frame.filename.startswith(_NOT_THEIRS)]
        # If a payload cannot be loaded, a note of the error says which part of it.
        if user_frames or payload.__file__ in files:
            part.stack = traceback.StackSummary.from_list(user_frames)
        part = part.__cause__ or part.__context__
    return formatting.shortened("".join(root.format()).rstrip(), _LONGEST)


def is_out_of_memory(error: BaseException, is_limited: bool = False) -> bool:
    """Return True if the error, in words of Python, the kernel or the linker, says that memory ran out.

    The error's `__context__`, which was merely being handled when it was raised, does not count.

    Args:
        is_limited: True if the process has a memory limit. Some messages mean a lack of memory only then.
            Without a limit, they have other causes: a library that cannot be mapped may be in a place where
            nothing may be executed, and threads have a limit of their own.
    """
    for cause in _causes(error):
        if isinstance(cause, BaseExceptionGroup):
            if any(is_out_of_memory(member, is_limited) for member in cause.exceptions):
                return True
        elif isinstance(cause, MemoryError):
            return True
        elif isinstance(cause, (ImportError, OSError, RuntimeError, SystemError)):
            if isinstance(cause, OSError) and cause.errno == errno.ENOMEM:
                return True
            # The user's exception may raise an error of its own in __str__.
            with contextlib.suppress(Exception):
                if str(cause).endswith(_NO_MEMORY + _NO_MEMORY_WHERE_LIMITED * is_limited):
                    return True
        if cause.__cause__ is None:
            break
    return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and what led to it. User code may have made a cycle of causes."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
