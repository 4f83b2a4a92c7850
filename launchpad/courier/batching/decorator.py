"""`batched_handler`: one call of a method answers the calls of many clients.

    client ──step(x1)──▶ ┐                                       ┌──▶ y1
    client ──step(x2)──▶ ├─▶ BatchQueue ──▶ step([x1, x2, x3]) ──┼──▶ y2
    client ──step(x3)──▶ ┘                                       └──▶ y3

Only the thread that runs a batch waits for the batch. A server gets a Promise, so its thread is free at once.
"""

from __future__ import annotations

import functools
import threading
import time
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from launchpad.courier.batching.batch import BatchedCall, Batcher
from launchpad.courier.batching.queue import BatchQueue, Limits
from launchpad.courier.checks import is_whole
from launchpad.courier.promise import Promise
from launchpad.courier.server.decorators import IDEMPOTENT

if TYPE_CHECKING:
    import datetime


def batched_handler(
    batch_size: int,
    max_parallelism: int = 1,
    timeout: float | datetime.timedelta = 0.2,
    pad_batch: bool = False,
) -> Callable[[Callable[..., Any]], Batched]:
    """Let one call of a served method answer the calls of many clients.

    Example:
        class Policy:
            @lp.batched_handler(batch_size=32, timeout=0.005)
            def act(self, observation):             # of shape (n, 84, 84, 4), with n up to 32
                return self._network(observation)   # of shape (n, 18)

        action_values = policy.act(observation)     # (84, 84, 4) and (18,): clients call as usual

    Each argument arrives stacked. Arrays, numbers and bools become one array with a new first axis, and
    torch tensors one tensor. Tuples, dicts, namedtuples and dataclasses are stacked field by field.
    Strings, lists and all other objects become one list with an item per call; None stays None. The
    result is taken apart the same way: each caller gets its item of every array and list in it.

    Calls in one batch must agree in structure, shapes and dtypes. A call that differs gets a
    ValueError that says where it differs, and the other calls are answered. If the method raises, all
    callers of the batch get the exception, with a note. But if the method is declared idempotent, the
    batch is repeated one call at a time, so that only the calls that cause the error fail.

    Waiting calls occupy no threads of the server. The method runs on threads of its own. It needs locks
    only if `max_parallelism` is above 1, or if it shares state with other methods.

    The decorator also works on functions, and as `self.act = lp.batched_handler(8)(self.act)` in a
    constructor. If you call the decorated method in its own process, without a server, the call blocks
    and returns the value. `act.__wrapped__` is the function for a whole batch.

    Args:
        batch_size: The most calls in one batch.
        max_parallelism: The most batches that run side by side.
        timeout: How long the first call of a batch waits for other calls, in seconds or as a timedelta.
            With 0 a batch takes the calls that came while the last batch ran, and waits for no more.
        pad_batch: If True, the last call of a batch is repeated, so that each batch has exactly
            `batch_size` calls. Use this for methods that are compiled for one shape. The results for
            copies are dropped.

    Raises:
        TypeError: The method is a coroutine function, or a generator.
        ValueError: A size or the timeout is out of range.
    """
    if callable(batch_size):
        raise TypeError("write @lp.batched_handler(batch_size=…) with its parentheses")
    for name, value in (("batch_size", batch_size), ("max_parallelism", max_parallelism)):
        if not is_whole(value, at_least=1):
            raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")
    timeout_s = timeout if isinstance(timeout, int | float) else timeout.total_seconds()
    if not 0 <= timeout_s <= threading.TIMEOUT_MAX:
        raise ValueError(f"timeout is in seconds and not negative, not {timeout!r}")
    limits = Limits(batch_size, max_parallelism, timeout_s, pad_batch)
    return lambda fn: Batched(_checked(fn), limits)


class Batched:
    """A function or method whose calls are answered in batches. Made by `batched_handler`.

    A method has separate batches for each instance. The batches don't keep the instance alive.
    """

    def __init__(
        self, fn: Callable[..., Any], limits: Limits, queue: BatchQueue | None = None
    ) -> None:
        functools.update_wrapper(self, fn)
        self.__wrapped__ = fn
        self._limits = limits
        self._queue = queue or self._new_queue()
        # This lock is held so that threads that look up an instance at the same time get the same queue.
        self._lock = threading.Lock()
        # For methods: the queues by instance.
        self._queues: dict[int, tuple[weakref.ref[object], BatchQueue]] = {}
        self._is_method = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for the batch that this call becomes a part of, and return this call's result."""
        if self._is_method:  # Policy.act(policy, observation)
            return self.__get__(args[0])(*args[1:], **kwargs)
        if threading.current_thread() in self._queue.threads:
            raise RuntimeError(
                f"{_name_of(self.__wrapped__)} was called from within its own batch, and might wait for"
                " itself forever. For what is stacked already, call its __wrapped__."
            )
        promise = self.courier_promise(*args, **kwargs)
        try:
            promise.wait()
            return promise.result()
        except BaseException:
            promise.cancel()  # no thread waits any more; this does nothing if the promise is done
            raise
        finally:
            del promise  # an exception's traceback must not lead back to the exception

    def courier_promise(self, *args: Any, **kwargs: Any) -> Promise:
        """Return at once a promise that is done when the batch is done. A server calls this."""
        request = BatchedCall(self.__wrapped__, args, kwargs, time.monotonic())
        self._queue.put(request)
        return request

    def __set_name__(self, owner: type, name: str) -> None:
        self._is_method = True

    def __get__(self, instance: object, owner: type | None = None) -> Batched:
        if instance is None:
            return self
        # The key is the object's identity, because an object need not be hashable. The entry is removed with
        # the object.
        key = id(instance)
        queues = self._queues
        with self._lock:
            entry = queues.get(key)
            if entry is None:
                try:
                    reference = weakref.ref(instance, lambda _: queues.pop(key, None))
                except TypeError:
                    raise TypeError(
                        f"{type(instance).__qualname__} has a batched method and __slots__ without"
                        " '__weakref__': add '__weakref__' to its __slots__"
                    ) from None
                entry = queues[key] = reference, self._new_queue()
        method = types.MethodType(self.__wrapped__, instance)
        bound = Batched(method, self._limits, entry[1])
        bound.__dict__.update(self._marks())
        return bound

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the waiting calls. A script's classes are pickled by value, with their methods."""
        state = self._marks() | {"_is_method": self._is_method}
        return Batched, (self.__wrapped__, self._limits), state

    def __repr__(self) -> str:
        return f"<batched {self.__wrapped__!r}>"

    def _marks(self) -> dict[str, Any]:
        """Return the marks that other decorators of courier have left on the method."""
        return {name: value for name, value in vars(self).items() if name.startswith("courier_")}

    def _new_queue(self) -> BatchQueue:
        pad_to = self._limits.size if self._limits.pads else 0
        batcher = Batcher(pad_to, lambda: bool(getattr(self, IDEMPOTENT, False)))
        return BatchQueue(_name_of(self.__wrapped__), self._limits, batcher.run)


def _checked(fn: Callable[..., Any]) -> Callable[..., Any]:
    import inspect

    if not callable(fn):
        raise TypeError(f"batched_handler decorates a function, not a {type(fn).__name__}")
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
        raise TypeError(
            f"batched_handler decorates what returns its result: {_name_of(fn)} is a generator or an"
            " async def"
        )
    return fn


def _name_of(fn: object) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)
