"""Exceptions as bytes, with arguments, attributes and notes, and with causes, contexts and group members.

Pickle rebuilds an exception by calling its class with `args`. This fails for a class whose constructor takes
other arguments, and it loses cause and context. Here:

1. No constructor of a user is called. Python's own base class gets the arguments, and then all attributes are
   set. A class that defines how it is pickled (`__reduce__`) is pickled in its own way.
2. Members of a group, cause and context are pickled one by one. If one of them can't be rebuilt on the other
   side, it becomes a RemoteError with its text. If its type can be imported there, the RemoteError is also of
   this type.

    encode ──▶ pickled _Parts; of several exceptions: a _Family ──▶ pickle.loads ──▶ the exception
"""

from __future__ import annotations

import contextlib
import copyreg
import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from launchpad.courier.errors import CourierError, RemoteError, RemoteTraceback, as_remote_kind

TryEncode = Callable[[object], bytes | None]

_MAX_CHAIN = 100  # causes and contexts; members of groups are not counted
_HEAP_TYPE = 1 << 9  # in __flags__: a class that a class statement has made
_NONE = -1
_OWN_WAYS = frozenset({"__reduce__", "__reduce_ex__"})


class _Record(NamedTuple):
    """One exception of several, which refers to the others by their index."""

    whole: bytes | None  # the exception, or a group's class and attributes
    kind: bytes | None  # its class and attributes, in case it can't be rebuilt itself
    name: str
    text: str  # its repr, or a group's message
    members: Sequence[int] | None  # indexes of a group's members
    cause: int
    context: int


def encode(error: Exception, try_encode: TryEncode, describe: Callable[[Any], str]) -> bytes | None:
    """Pickle an exception so that `pickle.loads` restores it; return None if that is not possible.

    `try_encode` pickles a value or returns None; `describe` is a repr that does not raise.
    """
    if not (isinstance(error, BaseExceptionGroup) or _cause_of(error) or _context_of(error)):
        return try_encode(_Parts(error))
    errors: list[BaseException] = [error]
    index = {id(error): 0}
    are_members: set[int] = set()
    n_chained = 0

    def find_index(of: BaseException | None) -> int:
        if of is None or (id(of) not in index and n_chained > _MAX_CHAIN):
            return _NONE
        if id(of) not in index:
            index[id(of)] = len(errors)
            errors.append(of)
        return index[id(of)]

    records = []
    for exception in errors:  # the list grows in this loop
        members = None
        pickled_error = None
        kind = None
        if isinstance(exception, BaseExceptionGroup):
            are_members.update(map(id, exception.exceptions))
            members = [find_index(member) for member in exception.exceptions]
            state = sendable(vars(exception), try_encode)
            pickled_error = try_encode((type(exception), state))
            if pickled_error is None:
                pickled_error = try_encode((ExceptionGroup, state))
            text = exception.message
        else:
            if not (id(exception) in are_members and is_of_another_call(exception)):
                pickled_error = try_encode(_Parts(exception))
                kind = try_encode((type(exception), sendable(vars(exception), try_encode)))
            text = describe(exception)
        n_chained += id(exception) not in are_members
        chain = find_index(_cause_of(exception)), find_index(_context_of(exception))
        name = type(exception).__qualname__
        records.append(tuple(_Record(pickled_error, kind, name, text, members, *chain)))
    can_be_rebuilt = isinstance(error, BaseExceptionGroup) or records[0][0] is not None
    return pickle.dumps(_Family(records), 5) if can_be_rebuilt else None


def is_of_another_call(error: BaseException) -> bool:
    """Return True if the error comes from a call that the method itself made.

    Our caller must not take it for a failure of its own call: a NotSent that arrived as itself would say that
    repeating that call is safe.
    """
    return isinstance(error, CourierError) and not isinstance(error, RemoteError)


def sendable(attributes: dict[str, Any], try_encode: TryEncode) -> dict[str, Any]:
    """Return the attributes whose values can be pickled."""
    if not attributes or try_encode(attributes) is not None:
        return attributes
    return {name: value for name, value in attributes.items() if try_encode(value) is not None}


def attach_remote_traceback(error: BaseException, remote: RemoteTraceback) -> None:
    """Make `remote` the cause of an exception. The former cause follows `remote`, and is not shown twice."""
    remote.__context__ = error.__cause__ or error.__context__
    remote.__suppress_context__ = True  # the text of `remote` shows them
    object.__setattr__(error, "__cause__", remote)  # a class may refuse to have attributes set


class _Parts:
    """A wrapper that pickles as the exception. Rebuilding it does not call the exception's constructor."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        error = self._error
        kind = type(error)
        if kind in copyreg.dispatch_table or _has_own_way(kind):
            return _same, (error,)
        reduced: tuple[Any, ...] = error.__reduce__()  # type: ignore[assignment]
        _, arguments, *state = reduced
        attributes = dict(state[0]) if state and state[0] else {}
        for base in kind.__mro__:
            slots = vars(base).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__"):
                    with contextlib.suppress(AttributeError):  # never assigned
                        attributes[name] = getattr(error, name)
        return _make, (kind, arguments, error.args, attributes)


class _Family:
    """A wrapper for several exceptions, which pickles as the first one, with the others where they belong."""

    def __init__(self, records: list[tuple[Any, ...]]) -> None:
        self._records = records

    def __reduce__(self) -> tuple[Any, ...]:
        return _join, (self._records,)


def _same(error: BaseException) -> BaseException:
    return error


def _make(
    kind: type[BaseException],
    arguments: tuple[Any, ...],
    args: tuple[Any, ...],
    attributes: dict[str, Any],
) -> BaseException:
    """Make an exception of this class without calling the class's own constructor."""
    base: Any = next(ancestor for ancestor in kind.__mro__ if not ancestor.__flags__ & _HEAP_TYPE)
    error: BaseException = base.__new__(kind, *arguments)
    base.__init__(error, *arguments)
    # The class's own `__setattr__` may refuse, as that of a frozen dataclass does.
    object.__setattr__(error, "args", args)
    _set_attributes(error, attributes)
    return error


def _set_attributes(error: BaseException, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        try:
            object.__setattr__(error, name, value)
        except AttributeError:  # a property has the name
            error.__dict__[name] = value


def _join(records: list[tuple[Any, ...]]) -> BaseException:
    parsed_records = [_Record(*record) for record in records]
    errors: dict[int, BaseException] = {}

    def find(i: int) -> BaseException:
        if i not in errors:
            record = parsed_records[i]
            if record.members is None:
                errors[i] = _make_one(record)
            else:
                errors[i] = _make_group(record, [find(member) for member in record.members])
        return errors[i]

    for i, record in enumerate(parsed_records):
        for name, of in (("__context__", record.context), ("__cause__", record.cause)):
            if of != _NONE:
                object.__setattr__(find(i), name, find(of))
    return find(0)


def _make_one(record: _Record) -> BaseException:
    with contextlib.suppress(Exception):
        error = pickle.loads(record.whole or b"")
        if isinstance(error, BaseException):
            return error
    plain = RemoteError(
        f"{record.name}, which could not be sent: {record.text}",
        type_name=record.name,
        remote_repr=record.text,
    )
    with contextlib.suppress(Exception):
        kind, state = pickle.loads(record.kind or b"")
        return as_remote_kind(kind, state, plain)
    return plain


def _make_group(record: _Record, members: list[BaseException]) -> BaseException:
    with contextlib.suppress(Exception):
        kind, state = pickle.loads(record.whole or b"")
        group: BaseException = BaseExceptionGroup.__new__(kind, record.text, members)
        _set_attributes(group, state)
        return group
    return BaseExceptionGroup(record.text, members)


def _has_own_way(kind: type[BaseException]) -> bool:
    """Return True if the class, or a user's class that it inherits from, defines how to pickle it."""
    return any(
        base.__flags__ & _HEAP_TYPE and not vars(base).keys().isdisjoint(_OWN_WAYS)
        for base in kind.__mro__
    )


def _cause_of(error: BaseException) -> BaseException | None:
    """Return the exception that `error` was raised from, also if that was in another process."""
    cause = error.__cause__
    return cause.__context__ if isinstance(cause, RemoteTraceback) else cause


def _context_of(error: BaseException) -> BaseException | None:
    """Return the exception that was being handled; None if `raise … from None` hides it."""
    is_hidden = error.__suppress_context__ and error.__cause__ is None
    return None if is_hidden else error.__context__
