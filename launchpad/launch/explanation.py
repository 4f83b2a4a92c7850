"""Explanation: what can be told about the exception that a worker failed of."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace

from launchpad import courier, outcome
from launchpad.errors import DoNotRestart
from launchpad.launch import payload
from launchpad.outcome import Outcome


def explained(failed: Outcome, error: BaseException, memory_bytes: int | None = None) -> Outcome:
    """The outcome with all that can be told about the error; `memory_bytes` is what the worker may have."""
    limit = _limit(memory_bytes)
    is_of_memory = is_want_of_memory(error, limit is not None)
    return replace(
        failed,
        error_type=payload.qualified(type(error)),
        may_restart=not _has_opted_out(error),
        traceback=trimmed_traceback(error),
        hint=_hint_of_memory(error, limit) if is_of_memory else _hint(error),
        blames=_blamed(error),
        raised_in=_raised_in(error),
        out_of_memory=is_of_memory,
    )


def describe(error: BaseException) -> str:
    """The error in one line, `ValueError: boom`; empty lines at the beginning of its message are left out."""
    lines = "".join(traceback.format_exception_only(error)).split("\n")
    first, *others = (line.strip() for line in lines if line.strip())
    return f"{first} {others[0]}" if first.endswith(":") and others else first


def trimmed_traceback(error: BaseException) -> str:
    """The traceback and its causes, without the frames of launchpad, which are not the user's concern."""
    whole = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = whole
    seen: set[int] = set()
    while part is not None and id(part) not in seen:
        seen.add(id(part))
        theirs = [frame for frame in part.stack if not _is_ours(frame.filename)]
        part.stack = traceback.StackSummary.from_list(theirs) if theirs else part.stack
        part = part.__cause__ or part.__context__
    return "".join(whole.format()).rstrip()


def is_want_of_memory(error: BaseException, is_limited: bool = False) -> bool:
    """Whether that is what it failed of, by whatever name: Python's, the kernel's or the dynamic linker's.

    Args:
      is_limited: Its process may have so much memory and no more. Some words mean that only then: a library
        that cannot be mapped may lie where nothing may be executed, and threads have a limit of their own.
    """
    return any(_says_so(cause, is_limited) for cause in _explicit_causes(error))


def _says_so(error: BaseException, is_limited: bool) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(is_want_of_memory(each, is_limited) for each in error.exceptions)
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    words = _NO_MEMORY + _NO_MEMORY_WHERE_LIMITED * is_limited
    of_libraries = isinstance(error, (ImportError, OSError, RuntimeError))
    return of_libraries and _text(error).endswith(words)


_NO_MEMORY = ("cannot map zero-fill pages", "annot allocate memory")
_NO_MEMORY_WHERE_LIMITED = ("failed to map segment from shared object", "can't start new thread")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the user's exception does something when it is looked at
        return ""


def _has_opted_out(error: BaseException) -> bool:
    if isinstance(error, SystemExit):
        return error.code in outcome.NO_RESTART_CODES
    return any(isinstance(cause, DoNotRestart) for cause in _causes(error))


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE)


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _hint(error: BaseException) -> str:
    if isinstance(error, ImportError):
        return (
            f"the worker looked in sys.path = {sys.path};"
            " install the module there, or launch from its folder"
        )
    return ""


def _hint_of_memory(error: BaseException, limit: int | None) -> str:
    elsewhere = _raised_in(error)
    if elsewhere:
        return f"{elsewhere} had no memory for a call"
    peak = f"the peak memory of its process was {_peak_bytes() / 2**20:,.0f} MiB"
    if limit is None:
        return f"{peak}; see also `ulimit -v`"
    allowed = f"its Resources(memory=…), or `ulimit -d`, allows it {limit / 2**20:,.0f} MiB"
    return f"{peak}; {allowed}, with the stacks of its threads"


def _limit(memory_bytes: int | None) -> int | None:
    import resource

    limits = [memory_bytes, resource.getrlimit(resource.RLIMIT_DATA)[0]]
    return min((n for n in limits if n is not None and n != resource.RLIM_INFINITY), default=None)


def _peak_bytes() -> int:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what led to it; user code may have tied causes into a ring."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _explicit_causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it was raised from; what was merely in hand meanwhile explains nothing."""
    for cause in _causes(error):
        yield cause
        if cause.__cause__ is None:
            return


def _blamed(error: BaseException) -> str:
    """The worker whose absence an error of courier reports."""
    absent = (courier.WorkerFailed, courier.OutcomeUnknown, courier.NotSent)
    return next((cause.server for cause in _causes(error) if isinstance(cause, absent)), "")


def _raised_in(error: BaseException) -> str:
    """The worker in which the exception was first raised, if it came out of a call."""
    remote = [cause for cause in _causes(error) if isinstance(cause, courier.RemoteTraceback)]
    if remote:
        return remote[-1].origin
    return error.server if isinstance(error, courier.CourierError) else ""
