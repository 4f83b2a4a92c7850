"""One batch: the calls of many callers, answered by one call of a function.

requests ──agree?──▶ stack ──▶ fn(*args, **kwargs) ──▶ unstack ──▶ an outcome for each
             └─ no: ValueError for those that differ, and only for them
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from typing import Any

from launchpad.courier.batching.stacking import are_alike, describe, difference, stack, unstack
from launchpad.courier.promise import Promise


class BatchedCall(Promise):
    """One caller's call, which a batch will answer."""

    __slots__ = ("args", "fn", "kwargs", "since")

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], since: float
    ) -> None:
        super().__init__()
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.since = since  # when the call came, by time.monotonic()


class Batcher:
    """A runner of batches of one function. It remembers what the function's requests are usually like."""

    def __init__(self, pad_to: int, is_idempotent: Callable[[], bool]) -> None:
        #: The smallest size of a batch. Smaller batches are filled up with copies of their last request.
        self._pad_to = pad_to
        #: If it returns True, a batch that raised is repeated one call at a time, so that only the calls that
        #: raise fail.
        self._is_idempotent = is_idempotent
        self._usual: Hashable = None

    def run(self, requests: list[BatchedCall]) -> None:
        """Give each request its outcome. This never raises."""
        try:
            self._run_alike(self._reject_mismatched(requests))
        except BaseException as error:  # no memory, no numpy, …: no caller may wait forever
            _fail(requests, error)
        finally:
            del requests  # if they hold an exception, its traceback leads here

    def _reject_mismatched(self, requests: list[BatchedCall]) -> list[BatchedCall]:
        """Return the largest group of requests that agree. The others get an error that says how they differ.

        If groups have equal size, the group that is like the last batch wins. So a lone caller with bad
        arguments cannot get a lone caller with good arguments refused.
        """
        calls = [(request.args, request.kwargs) for request in requests]
        with contextlib.suppress(Exception):  # the loop below finds the request that raises
            if are_alike(calls):
                self._usual = describe(calls[0])
                return requests
        groups: dict[Hashable, list[BatchedCall]] = {}
        for request in requests:
            try:
                key = describe((request.args, request.kwargs))
            except Exception as error:  # a field without a value, a tuple that contains itself
                request.set_exception(error)
            else:
                groups.setdefault(key, []).append(request)
        if not groups:
            return []
        best = max(groups, key=lambda key: (len(groups[key]), key == self._usual))
        for key, group in groups.items():
            if key != best:
                _refuse(group, groups[best])
        self._usual = best
        return groups[best]

    def _run_alike(self, requests: list[BatchedCall]) -> None:
        if not requests:
            return
        n = max(len(requests), self._pad_to)
        padded = requests + requests[-1:] * (n - len(requests))
        args, kwargs = stack([(request.args, request.kwargs) for request in padded])
        try:
            result = requests[0].fn(*args, **kwargs)
        except BaseException as error:  # SystemExit too: the callers get it
            if len(requests) > 1 and self._is_idempotent():
                for request in requests:
                    self.run([request])
                return
            if len(requests) > 1:
                error.add_note(
                    f"raised for a batch of {len(requests)} requests, of which this was one"
                )
            _fail(requests, error)
        else:
            for request, value in zip(requests, unstack(result, n), strict=False):
                request.set_result(value)
        finally:
            del requests, padded


def _refuse(mismatched: list[BatchedCall], majority: list[BatchedCall]) -> None:
    expected = majority[0]
    actual = mismatched[0]
    where = difference(expected.args, actual.args, "args") or difference(
        expected.kwargs, actual.kwargs, "kwargs"
    )
    message = (
        f"{where}. Calls that are answered in one batch must agree in structure, shapes and dtypes,"
        f" and {len(majority)} of the {len(majority) + len(mismatched)} calls of this batch did."
        " This call has not run."
    )
    for request in mismatched:
        request.set_exception(ValueError(message))


def _fail(requests: list[BatchedCall], error: BaseException) -> None:
    for request in requests:
        request.set_exception(error)
