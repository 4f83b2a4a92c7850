"""Values and exceptions as bytes.

Plain pickle first, because it is fast and both sides can import most things; cloudpickle only for
what needs it: when plain pickle raises, or when the stream names `__main__`, whose classes the
other side cannot import. Buffers of 4 KiB and more stay out of band (PEP 574): they are never
copied on the way out, and arrive private and writable.

An exception travels in an envelope of six parts: type name, repr, traceback, pickled type, pickled
exception, and the server that it comes from. The two pickles are apart from the rest and may be
missing, so that whatever cannot be unpickled on the other side still arrives as text, and as a type
that `except` knows, where the type can be imported. (protocol/envelope.py)
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from launchpad.courier.errors import CourierError, RemoteError, RemoteTraceback, as_remote_kind
from launchpad.courier.protocol import envelope
from launchpad.courier.protocol.wire import Chunk
from launchpad.courier.values import tensors

_OUT_OF_BAND_FROM = 4 << 10
_SHORTEST_GLOBAL = 27  # a pickle that names a class of __main__ is at least this long
SCALARS = frozenset({int, float, bool, str, bytes, type(None)})  # no buffers, no classes
_MAX_REPR = 10_000
_OUR_FILES = os.path.dirname(os.path.dirname(__file__)) + os.sep

_reducers = tensors.reducers
_dumps = pickle.dumps
_loads = pickle.loads


def encode(value: object) -> tuple[bytes, list[memoryview]]:
    """Pickles `value`; returns the stream and the buffers that it left out.

    `pickle.loads(stream, buffers=buffers)` is the way back; buffers become part of the value.
    """
    if type(value) in SCALARS:
        return _dumps(value, 5), []
    if _reducers():
        return _encode_again(value, None)
    found: list[pickle.PickleBuffer] = []
    try:
        body = _dumps(value, 5, buffer_callback=found.append)
        if len(body) < _SHORTEST_GLOBAL or body.find(b"__main__") < 0:
            if not found:
                return body, []
            buffers = [buffer.raw() for buffer in found]
            if min(map(len, buffers)) >= _OUT_OF_BAND_FROM:
                return body, buffers
    except Exception as error:
        return _encode_again(value, error)
    return _encode_again(value, None)


def encode_call(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bytes, Sequence[memoryview] | None]:
    """`encode((args, kwargs))`, faster for arguments that are scalars.

    Where one of them is an iterator nothing is encoded, and the second is None: see streams/arguments.py.
    """
    if not kwargs:
        for arg in args:
            if type(arg) not in SCALARS:
                break
        else:
            return _dumps((args, kwargs), 5), ()
    if _has_streams(args, kwargs):
        return b"", None
    return encode((args, kwargs))


def _has_streams(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an argument is an iterator, so that it cannot travel with the call."""
    for arg in args:
        if type(arg) not in SCALARS and is_stream(arg):
            return True
    return any(is_stream(arg) for arg in kwargs.values())


def is_stream(value: object) -> bool:
    """An iterator, sync or async: it has more to give than what it is."""
    kind = type(value)
    return hasattr(kind, "__next__") or hasattr(kind, "__anext__")


def _encode_again(value: object, error: Exception | None) -> tuple[bytes, list[memoryview]]:
    """For what has buffers, or needs cloudpickle."""
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _OUT_OF_BAND_FROM:
            return True
        buffers.append(raw)
        return False

    if error is None:
        try:
            body = _dump(value, keep)
            if b"__main__" not in body:
                return body, buffers
        except Exception as failed:
            error = failed
        buffers.clear()
    return _encode_by_value(value, keep, error), buffers


def _dump(value: object, keep: Callable[[Any], bool]) -> bytes:
    """`pickle.dumps`, which also knows how to take tensors out of band."""
    if not _reducers():
        return _dumps(value, 5, buffer_callback=keep)
    with io.BytesIO() as file:
        pickler = pickle.Pickler(file, 5, buffer_callback=keep)
        pickler.dispatch_table = tensors.dispatch_table()
        pickler.dump(value)
        return file.getvalue()


def _encode_by_value(value: object, keep: Callable[[Any], bool], error: Exception | None) -> bytes:
    try:
        from launchpad.courier.values import by_value
    except ImportError:
        if error is not None:
            raise error from None
        return _dumps(value, 5, buffer_callback=keep)
    return by_value.dumps(value, 5, keep)


def encode_error(error: BaseException, *, is_ours: bool = False) -> bytes:
    """Pickles what a method raised, or the server itself has to say (`is_ours`). Never fails."""
    as_itself = isinstance(error, Exception) and (is_ours or not _is_courier_failure(error))
    return envelope.seal(
        _name_of(type(error)),
        _repr_of(error),
        _format(error),
        _encode_kind(error) if as_itself else None,
        _try_encode(error) if as_itself else None,
        getattr(error.__cause__, "origin", ""),
    )


def encode_unpicklable(result: object, error: BaseException) -> bytes:
    """Pickles the failure of a result that cannot be pickled, as type, repr and traceback."""
    name = _name_of(type(result))
    text = f"The method returned a {name}, which cannot be pickled: {_repr_of(error)}\n"
    return envelope.seal(name, _repr_of(result), text + _format(error), None, None, "")


def decode_error(body: Chunk, *, server: str, address: str, method: str) -> Exception:
    """The exception to raise here for one that was raised over there."""
    type_name, remote_repr, text, kind, whole, origin = envelope.open(body)
    loaded = _try_decode(whole)
    if isinstance(loaded, RemoteError) and (loaded.server, loaded.method) == (server, method):
        return loaded  # the server's own words about this call: they say all there is to say
    error: Exception
    if isinstance(loaded, Exception):
        error = loaded
    else:
        plain = RemoteError(
            f"{method!r} of {server or address} failed with {type_name}: {remote_repr}",
            server=server,
            address=address,
            method=method,
            type_name=type_name,
            remote_repr=remote_repr,
            traceback=text,
        )
        original, state = _try_decode(kind) or (RemoteError, {})
        error = as_remote_kind(original, state, plain)
    where = f"In {method!r} of {server or 'server'} ({address}):"
    error.__cause__ = RemoteTraceback(f"{where}\n{text}", origin or server)
    return error


def describe_error(body: Chunk) -> tuple[str, str, str]:
    """Type, repr and traceback of what `encode_error` has encoded. Nothing of the user's is unpickled."""
    type_name, text, traceback, *_ = envelope.open(body)
    return type_name, text, traceback


def _is_courier_failure(error: Exception) -> bool:
    """A call made by the method failed: to our caller that must not look like its own call.

    A NotSent that came back as itself would tell the caller that repeating is safe.
    """
    return isinstance(error, CourierError) and not isinstance(error, RemoteError)


def _try_encode(value: object) -> bytes | None:
    try:
        body = _dumps(value, 5)
        return body if b"__main__" not in body else _encode_by_value(value, _in_band, None)
    except Exception as error:
        try:
            return _encode_by_value(value, _in_band, error)
        except Exception:
            return None


def _encode_kind(error: BaseException) -> bytes | None:
    """The type, with the attributes if they can be pickled."""
    return _try_encode((type(error), vars(error))) or _try_encode((type(error), {}))


def _in_band(_: object) -> bool:
    return True


def _try_decode(body: bytes | None) -> Any:
    try:
        return _loads(body) if body is not None else None
    except BaseException:  # whatever a constructor of the user's throws
        return None


def _name_of(kind: type) -> str:
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )


def _repr_of(value: object) -> str:
    try:
        return repr(value)[:_MAX_REPR]
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def _format(error: BaseException) -> str:
    """The traceback with its causes, from the first frame that is not ours."""
    import traceback

    try:
        lines = traceback.format_exception(type(error), error, _skip_ours(error.__traceback__))
        return "".join(lines)
    except Exception as failure:  # a __str__ of the user's that raises
        return f"{_repr_of(error)}\n(its traceback cannot be shown: {_repr_of(failure)})\n"


def _skip_ours(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OUR_FILES):
        trace = trace.tb_next
    return trace
