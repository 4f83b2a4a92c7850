"""Values and exceptions as bytes.

Plain pickle comes first, because it is fast and both sides can import most things. cloudpickle encodes only
the values that need it: those for which plain pickle raises, and those whose stream names `__main__`, whose
classes the other side can't import. Buffers of 4 KiB and more stay out of band (PEP 574). They are never
copied on the way out, and arrive private and writable.

An exception travels in an envelope of six parts. The two pickles are separate from the texts, and may
be missing. So an exception that cannot be unpickled on the other side still arrives as text and, if
its type can be imported there, as an error that `except` with this type catches.

offset  size  field
──────  ────  ──────────────────────────────────────────────
     0    24  the lengths of the parts (4 bytes each); 2**32-1 for a part that is missing
    24        type name · repr · traceback · pickled type · pickled exception · server
"""

from __future__ import annotations

import os
import pickle
import struct
import threading
import traceback  # imported now: later there may be no descriptor left to read it with
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from launchpad.courier.codec import (
    arrays,
    exceptions,
    large_code,
    nests,
    tensors,
    unpicklable,
)
from launchpad.courier.codec.iterators import is_iterator, is_stream
from launchpad.courier.errors import (
    ProtocolError,
    RemoteError,
    RemoteTraceback,
    as_remote_kind,
)
from launchpad.courier.protocol.framing import Chunk

_OUT_OF_BAND_FROM = 4 << 10
_REUSED_UP_TO = 64 << 10  # bytes; a Pickler keeps as much memory as it has written
_SHORTEST_GLOBAL = 27  # a pickle that names a class of __main__ is at least this long
SHORTEST = min(len(arrays.START), len(nests.START))  # shorter streams begin with neither
SCALARS = nests.SCALARS
_NO_STREAMS = SCALARS | {list, tuple, dict, set, frozenset, bytearray, memoryview}
_MAX_REPR = 10_000
_LENGTHS = struct.Struct("<6I")
_MISSING = 0xFFFFFFFF
_OUR_FILES = os.path.dirname(os.path.dirname(__file__)) + os.sep

_dumps = pickle.dumps
_loads = pickle.loads


Dumps = Callable[[object, int, Callable[[Any], bool]], bytes]
"""A function that pickles with cloudpickle. It takes a value, a protocol and a callback for buffers."""


def encode(value: object, dumps_by_value: Dumps | None = None) -> tuple[bytes, list[memoryview]]:
    """Pickle `value`; return the stream, and the buffers that the stream leaves out.

    `pickle.loads(stream, buffers=buffers)` restores the value. The buffers become part of it.

    Args:
        dumps_by_value: Pickles values that pickle alone can't encode; `by_value.dumps` by default.
    """
    kind = type(value)
    if kind in SCALARS:
        return _dumps(value, 5), []
    if kind is arrays.ndarray:
        stream_and_buffers = arrays.encode(value, arrays.ALONE)
        if stream_and_buffers is not None:
            return stream_and_buffers
    if kind in nests.NESTS and arrays.ndarray is not None:
        nest = nests.encode(value)
        if nest is not None:
            return nest, []
    failed: Exception | None = None
    try:
        body, pickle_buffers = _pickle(value)
        if len(body) < _SHORTEST_GLOBAL or body.find(b"__main__") < 0:
            if not pickle_buffers:
                return body, []
            buffers = [buffer.raw() for buffer in pickle_buffers]
            if min(map(len, buffers)) >= _OUT_OF_BAND_FROM:
                return body, buffers
    except Exception as error:
        # Leave the `except` block first, so that an error of cloudpickle doesn't get this one as its context.
        failed = error.with_traceback(None)
    return _encode_again(value, failed, dumps_by_value)


def loads(stream: Any, buffers: Any = ()) -> Any:
    """Do what `pickle.loads` does, faster for arrays."""
    if type(stream) is bytes:
        if stream.startswith(arrays.START):
            return arrays.load_stream(stream, buffers)
        if stream.startswith(nests.START):
            return nests.load_stream(stream)
    return _loads(stream, buffers=buffers) if buffers else _loads(stream)


def _pickle(value: object) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Do what `pickle.dumps` does, with our reducers for arrays and tensors, and all buffers left out."""
    table = tensors.dispatch_table()
    if not table:
        pickle_buffers: list[pickle.PickleBuffer] = []
        return _dumps(value, 5, buffer_callback=pickle_buffers.append), pickle_buffers
    reused = _of_thread.pickler
    # While the Pickler is in use, code that `dump` calls must not find it. If `dump` fails, the Pickler is
    # not kept.
    _of_thread.pickler = None
    if reused is None or reused.table is not table:
        reused = _ReusedPickler(table)
    pickler = reused.pickler
    chunks = reused.chunks
    pickle_buffers = reused.found
    pickler.dump(value)
    pickler.clear_memo()
    if len(chunks) > 1:
        return b"".join(chunks), pickle_buffers
    body = chunks.pop()
    if pickle_buffers or len(body) > _REUSED_UP_TO:
        return body, pickle_buffers
    _of_thread.pickler = reused
    return body, []


class _ReusedPickler:
    """A Pickler that writes to memory. For a small value, reusing one takes half the time of a new one."""

    __slots__ = ("chunks", "found", "pickler", "table")

    def __init__(self, table: dict[type, Callable[[Any], Any]]) -> None:
        self.table = table
        self.chunks: list[bytes] = []
        self.found: list[pickle.PickleBuffer] = []
        self.pickler = pickle.Pickler(
            _File(self.chunks.append), 5, buffer_callback=self.found.append
        )
        self.pickler.dispatch_table = table


class _File:
    """A file-like object with the one method that a Pickler needs."""

    __slots__ = ("write",)

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self.write = write


class _OfThread(threading.local):
    pickler: _ReusedPickler | None = None


_of_thread = _OfThread()


def encode_call(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bytes, Sequence[memoryview] | None]:
    """Do what `encode((args, kwargs))` does, faster for arguments that are scalars.

    If an argument is an iterator, this encodes nothing, and returns None instead of the buffers: see
    streams/arguments.py.
    """
    if not kwargs:
        for arg in args:
            if type(arg) not in SCALARS:
                break
        else:
            return _dumps((args, kwargs), 5), ()
        if len(args) == 1 and type(arg) is arrays.ndarray:
            stream_and_buffers = arrays.encode(arg, arrays.ONLY_ARGUMENT)
            if stream_and_buffers is not None:
                return stream_and_buffers
    for arg in args:
        if type(arg) not in _NO_STREAMS and is_stream(arg):
            return b"", None
    for arg in kwargs.values():
        if is_stream(arg):
            return b"", None
    try:
        return encode((args, kwargs))
    except Exception as error:
        for name, arg in (*enumerate(args), *kwargs.items()):
            if not _can_encode(arg):
                why = f"{describe_culprit(arg)}" or ": it cannot be pickled"
                why += _suggest_stream(arg, "give the call")
                error.add_note(f"(argument {name!r} of the call, a {_name_of(type(arg))},{why})")
        raise


def _encode_again(
    value: object, error: Exception | None, dumps_by_value: Dumps | None
) -> tuple[bytes, list[memoryview]]:
    """Encode a value that has buffers, or needs cloudpickle."""
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _OUT_OF_BAND_FROM:
            return True
        buffers.append(raw)
        return False

    if error is None:
        try:
            chunks: list[bytes] = []
            pickler = pickle.Pickler(_File(chunks.append), 5, buffer_callback=keep)
            table = tensors.dispatch_table()
            if table:
                pickler.dispatch_table = table
            pickler.dump(value)
            body = b"".join(chunks)
            if b"__main__" not in body:
                return body, buffers
        except Exception as failed:
            error = failed.with_traceback(None)
        buffers.clear()
    if dumps_by_value is not None:
        body = dumps_by_value(value, 5, keep)
    else:
        body = _encode_by_value(value, error, keep)
    if len(body) + sum(buffer.nbytes for buffer in buffers) >= large_code.LARGE:
        large_code.warn(value, encode)
    return body, buffers


def _encode_by_value(
    value: object, error: Exception | None, keep: Callable[[Any], bool] = lambda _: True
) -> bytes:
    """Pickle with cloudpickle. If it is not installed, raise `error`; without an error, use pickle."""
    try:
        from launchpad.courier.codec import by_value
    except ImportError:
        if error is not None:
            raise error from None
        return _dumps(value, 5, buffer_callback=keep)
    return by_value.dumps(value, 5, keep)


def encode_error(error: BaseException, *, is_ours: bool = False) -> bytes:
    """Encode an error that a method raised or, with `is_ours`, one of the server itself. Never fails."""
    as_itself = is_ours or not exceptions.is_of_another_call(error)
    kind = None
    pickled_error = None
    if isinstance(error, Exception) and as_itself:
        kind = _try_encode((type(error), exceptions.sendable(vars(error), _try_encode)))
        pickled_error = exceptions.encode(error, _try_encode, _repr_of)
    return seal_error(
        _name_of(type(error)),
        _repr_of(error),
        _format(error),
        kind,
        pickled_error,
        getattr(error.__cause__, "origin", ""),
    )


def encode_unpicklable(result: object, error: BaseException, verb: str = "returned") -> bytes:
    """Encode the failure of a result that cannot be pickled, as type, repr and traceback.

    `verb` says what the method did with the result.
    """
    name = _name_of(type(result))
    why = f"{describe_culprit(result)}: {_repr_of(error)}{_suggest_stream(result, 'return')}"
    text = f"The method {verb} a {name}, which cannot be pickled{why}\n"
    message = _dumps(_Unsent(verb, why), 5)
    return seal_error(name, _repr_of(result), text + _format(error), None, message, "")


def decode_error(body: Chunk, *, server: str, address: str, method: str) -> Exception:
    """Return the exception to raise here for one that was raised at the server."""
    envelope = open_error(body)
    type_name = envelope.type_name
    loaded = _try_decode(envelope.error)
    if isinstance(loaded, RemoteError) and (loaded.server, loaded.method) == (server, method):
        return loaded  # the server's own error about this call needs nothing more
    error: Exception
    if isinstance(loaded, Exception):
        error = loaded
    else:
        happened = f"failed with {type_name}: {envelope.text}"
        if isinstance(loaded, _Unsent):
            happened = (
                f"has run, and {loaded.what} a {type_name}, which cannot be pickled{loaded.why}. "
                "Let it give what the caller needs of that, or leave this part out (__getstate__)."
            )
        plain = RemoteError(
            f"{method!r} of {server or address} {happened}",
            server=server,
            address=address,
            method=method,
            type_name=type_name,
            remote_repr=envelope.text,
            traceback=envelope.traceback,
        )
        original, state = _try_decode(envelope.kind) or (RemoteError, {})
        error = as_remote_kind(original, state, plain)
    where = f"In {method!r} of {server or 'server'} ({address}):"
    remote = RemoteTraceback(f"{where}\n{envelope.traceback}", envelope.origin or server)
    exceptions.attach_remote_traceback(error, remote)
    return error


class Envelope(NamedTuple):
    """The parts of an encoded error."""

    type_name: str
    text: str  # its repr
    traceback: str
    kind: bytes | None  # its class and attributes, pickled
    error: bytes | None  # the exception itself, pickled
    origin: str  # the server that raised it first


def seal_error(
    name: str,
    text: str,
    traceback: str,
    kind: bytes | None,
    pickled_error: bytes | None,
    origin: str,
) -> bytes:
    """Return the envelope with these six parts, as bytes."""
    first = [part.encode(errors="surrogatepass") for part in (name, text, traceback)]
    parts = (*first, kind, pickled_error, origin.encode(errors="surrogatepass"))
    lengths = [_MISSING if part is None else len(part) for part in parts]
    return _LENGTHS.pack(*lengths) + b"".join(part for part in parts if part is not None)


def open_error(body: Chunk) -> Envelope:
    """Undo `seal_error`, without unpickling anything. Raises ProtocolError if it is not an envelope."""
    if len(body) < _LENGTHS.size:
        raise ProtocolError(f"an error of {len(body)} bytes, which is too short to be one")
    lengths = _LENGTHS.unpack_from(body)
    at = _LENGTHS.size
    parts: list[bytes | None] = []
    for length in lengths:
        size = 0 if length == _MISSING else length
        parts.append(None if length == _MISSING else bytes(body[at : at + size]))
        at += size
    if at != len(body):
        raise ProtocolError(f"an error whose parts make {at} bytes arrived in {len(body)}")
    name, text, traceback, _, _, origin = [(part or b"").decode(errors="replace") for part in parts]
    return Envelope(name, text, traceback, parts[3], parts[4], origin)


class _Unsent(NamedTuple):
    """A mark, sent instead of an exception, for a successful method whose result can't be pickled."""

    what: str
    why: str


def _suggest_stream(value: object, verb: str) -> str:
    """Suggest lp.stream for an iterator that isn't a stream by itself; return "" for other values."""
    if not is_iterator(type(value)):
        return ""
    return f". It is an iterator: to send its items one after the other, {verb} lp.stream(it)"


def describe_culprit(value: object) -> str:
    """Return ` because of .cfg['lock'], a _thread.lock`; empty if the value itself is at fault."""
    path, part = unpicklable.find_culprit(value, _can_encode)
    return f" because of {path}, a {_name_of(type(part))}" if path else ""


def _can_encode(value: object) -> bool:
    try:
        encode(value)
    except Exception:
        return False
    return True


def _try_encode(value: object) -> bytes | None:
    try:
        body, buffers = _pickle(value)
        if not buffers and b"__main__" not in body:
            return body
        return _encode_by_value(value, None)  # with the buffers in the pickle
    except Exception as error:
        try:
            return _encode_by_value(value, error)
        except Exception:
            return None


def _try_decode(body: bytes | None) -> Any:
    try:
        return _loads(body) if body is not None else None
    except BaseException:  # a user's constructor may raise anything
        return None


def _name_of(kind: type) -> str:
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def _repr_of(value: object) -> str:
    try:
        return repr(value)[:_MAX_REPR]
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def _format(error: BaseException) -> str:
    """Return the traceback with its causes, from the first frame that is not ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OUR_FILES):
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, trace))
    except Exception as failure:  # a user's `__str__` raised
        return f"{_repr_of(error)}\n(its traceback cannot be shown: {_repr_of(failure)})\n"
