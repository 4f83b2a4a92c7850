"""An executable as bytes, on its way to a worker.

Every executable is pickled, even for threads, so that no program works in threads and breaks in processes.
Pickling replaces these kinds of object:

    Handle    → the result of its dereference() in the worker; the handle must be an edge of the graph
    Deferred  → the result of its function in the worker
    Address   → a copy that knows the address's name
    Code      → bytes, pickled once however many nodes share the constructor
    Node      → an error: its handle was meant

The bytes of large arrays stay out of band (PEP 574), and are shared: see `large_buffers`.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import threading
import traceback
import types
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any, NamedTuple

import cloudpickle

from launchpad.address import Address
from launchpad.courier.codec import tensors
from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import DefinitionError, PayloadError
from launchpad.handle import ClientPickler, Handle, building
from launchpad.launch.large_buffers import LARGE, LargeBuffer, Openable
from launchpad.launch.planning import absl_flags, broken_payload
from launchpad.nodes.base import Node
from launchpad.program import Program
from launchpad.runtime import random_numbers, user_code
from launchpad.runtime.executable import Code, Executable
from launchpad.runtime.random_numbers import ScriptGenerator
from launchpad.traverse import Found, Step, children, walk

PICKLER = os.path.dirname(cloudpickle.__file__) + os.sep
"""The folder of cloudpickle's files, whose lines in a traceback mean nothing to users."""

_TOO_DEEP = 200


class BuildFailed(Exception):
    """A Deferred raised an exception while the payload was unpickled. The argument is that exception."""


@dataclass(frozen=True)
class Packed:
    """A value as bytes: a stream, and the buffers that the stream refers to, in that order."""

    stream: bytes
    buffers: tuple[LargeBuffer, ...] = ()

    @property
    def nbytes(self) -> int:
        """The size of the stream and the buffers together."""
        return len(self.stream) + sum(buffer.nbytes for buffer in self.buffers)


class _Member(NamedTuple):
    """An argument of a node, or a part of one, with its pickled size."""

    nbytes: int
    path: str
    value: Any


@dataclass
class Packer:
    """Pickles the executables of one program.

    Attributes:
        address_names: Address uid → its name in this plan.
        edges: The ids of the handles that are edges of the graph.
        code: Id of a constructor → the constructor as bytes, pickled when it is first met.
        setups: Id of a function that sets up workers → the function as bytes, likewise.
        generators: Id of a generator of random numbers in the script → its stand-in.
        buffers: Address and size of a large array's memory → the buffer, which keeps the memory alive.
        checksums: Address and size of that memory → the checksum of its bytes when it was first met.
        reduced: Id of a large array → the array, and what it is pickled as. To be pickled, an array that is
            not contiguous is copied. With this table, that happens only once.
    """

    address_names: dict[str, str]
    edges: frozenset[int]
    code: dict[int, Packed] = field(default_factory=dict)
    setups: dict[int, bytes] = field(default_factory=dict)
    generators: dict[int, ScriptGenerator] = field(default_factory=dict)
    buffers: dict[tuple[int, int], LargeBuffer] = field(default_factory=dict)
    checksums: dict[tuple[int, int], int] = field(default_factory=dict)
    reduced: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def pack(self, node: Node[Any], name: str, label: str) -> Packed:
        """Return the executable of a node as bytes.

        Raises:
            PayloadError: the executable cannot be pickled; the text says which part of it.
        """
        executable = node.to_executable()
        if not isinstance(executable, Executable):
            raise DefinitionError(
                f"{node!r}.to_executable() must give an Executable, got {executable!r}"
            )
        try:
            return self.dumps(executable)
        except DefinitionError:
            raise
        except Exception as error:
            roots = [Found(value, f"{label}.{where}") for where, value in node.arguments().items()]
            if isinstance(error, RecursionError) or "recursion" in str(error).lower():
                everything = (f for root in roots for f in walk(root.value, root.step))
                place = max(everything, key=lambda f: f.depth)
                reason = f"it is nested {place.depth - 1:,} deep"
                hint = "Make it flatter."
            else:
                place = self._innermost_bad(roots) or Found(node, label)
                reason = f"{type(error).__name__}: {error}"
                hint = _hint_for_code(place) or (
                    "Build it where the node runs instead: in the constructor, or with"
                    " lp.Deferred(fn, …)."
                )
            raise PayloadError(
                f"{name} ({node!r}, added at {node.added_at}) cannot be sent to its worker because of"
                f" {place.path}, a {qualified(type(place.value))}: {reason}. {hint}",
                node=name,
                path=place.path,
            ) from _from_user(error)

    def pack_setup(self, owner: str, function: Callable[[], object]) -> bytes:
        """Return a setup function, which a worker's process runs first, as bytes."""
        key = id(function)
        try:
            if key not in self.setups:
                self.setups[key] = self.dumps(function, has_buffers=False).stream
            return self.setups[key]
        except Exception as error:
            place = self._innermost_bad([Found(function, "setup")]) or Found(function, "setup")
            hint = _hint_for_code(place) or "Let the function make what it needs."
            raise PayloadError(
                f"setup= of {owner}, {user_code.name_of(function)}, cannot be sent to its workers because of"
                f" {place.path}, a {qualified(type(place.value))}: {type(error).__name__}: {error}. {hint}",
                node=owner,
                path=place.path,
            ) from _from_user(error)

    def dumps(self, value: Any, *, has_buffers: bool = True) -> Packed:
        """Return the value as bytes. Raise any exception that pickling may raise.

        Args:
            has_buffers: True if large buffers may be left out of the stream.
        """
        buffers: list[LargeBuffer] = []

        def is_in_band(data: pickle.PickleBuffer) -> bool:
            buffer = self._large(data) if has_buffers else None
            if buffer is not None:
                buffers.append(buffer)
            return buffer is None

        with io.BytesIO() as file:
            reducers = tensors.strided_reducers()
            pickler = _Pickler(file, 5, is_in_band, reducers)
            pickler.packer = self
            pickler.of_arrays = reducers
            pickler.dump(value)
            return Packed(file.getvalue(), tuple(buffers))

    def _large(self, data: pickle.PickleBuffer) -> LargeBuffer | None:
        """Return the buffer of this memory, made only once; None if the memory is small or not contiguous."""
        try:
            memory = data.raw()
        except BufferError:
            return None
        if memory.nbytes < LARGE:
            return None
        from launchpad.courier.shm.region import address_of

        with address_of(memory) as address:
            key = address, memory.nbytes
        checksum = zlib.crc32(memory)
        buffer = self.buffers.get(key)
        if buffer is None:
            buffer = LargeBuffer(memory)
            self.buffers[key] = buffer
            self.checksums[key] = checksum
        elif checksum != self.checksums[key]:
            raise ValueError(
                f"an array of {memory.nbytes:,} bytes has changed while the program was planned, so that what"
                " another node was given is lost: a __getstate__ or __reduce__ that fills one array again and"
                " again has to return a copy of it"
            )
        return buffer

    def largest(self, node: Node[Any], label: str, count: int = 5) -> list[tuple[str, int]]:
        """Return the (path, bytes) of a node's largest arguments, largest first.

        The largest argument is divided into its parts, again and again, so that users can act on the list.
        """
        members = [
            _Member(self.dumps(value).nbytes, f"{label}.{where}", value)
            for where, value in node.arguments().items()
        ]
        leaves: list[_Member] = []
        while members and len(leaves) < count:
            largest = max(members, key=lambda member: member.nbytes)
            members.remove(largest)
            parts = [
                _Member(self.dumps(value).nbytes, largest.path + step, value)
                for step, value in children(largest.value)
            ]
            members += parts
            leaves += [] if parts else [largest]
        leaves.sort(key=lambda leaf: -leaf.nbytes)
        return [(leaf.path, leaf.nbytes) for leaf in leaves]

    def _innermost_bad(self, roots: Iterable[Found]) -> Found | None:
        """Return the smallest part that cannot be pickled, of the first bad root; None if all are good."""
        bad: Found | None = None
        candidates = iter(roots)
        while True:
            for place in candidates:
                try:
                    self.dumps(place.value)
                except Exception:
                    break
            else:
                return bad
            if place.depth > _TOO_DEEP:
                return bad
            bad = place
            # The generator below is read while the loop above changes `place`.
            parent = place
            candidates = (
                Found(value, step, parent, parent.depth + 1) for step, value in _parts(parent.value)
            )


_loading = threading.local()


def is_loading() -> bool:
    """Return True while this thread, a worker's, imports users' modules.

    In the meantime, the thread must not launch the programs that these modules launch.
    """
    return getattr(_loading, "is_on", False)


def load(
    payload: bytes,
    buffers: Iterable[Openable] = (),
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Executable:
    """Return the executable, in the worker, with clients for handles and the values of Deferreds.

    Args:
        around: Returns a context for each call of a Deferred's function, since that is user code, which may
            call other nodes.

    Raises:
        BuildFailed: a Deferred's function raised.
    """

    def build(function: Callable[[], Any]) -> Any:
        # If the function itself unpickles Deferreds, their functions are just called.
        inside = building.set(lambda function: function())
        _loading.is_on = False
        try:
            absl_flags.refresh()
            with around():
                return function()
        except Exception as error:
            raise BuildFailed(error) from error
        finally:
            _loading.is_on = True
            building.reset(inside)

    token = building.set(build)
    _loading.is_on = True
    try:
        executable = _loads(payload, buffers)
    finally:
        _loading.is_on = False
        building.reset(token)
    assert isinstance(executable, Executable)
    return executable


def set_up(packed: bytes) -> None:
    """Run the function that `pack_setup` has packed, in the worker."""
    _loading.is_on = True
    try:
        function: Callable[[], object] = _loads(packed)
        function()
    finally:
        _loading.is_on = False


def _loads(payload: bytes, buffers: Iterable[Openable] = ()) -> Any:
    """Unpickle a payload. An error gets a note that says what could not be made."""
    try:
        # Buffers are opened one after the other, as the payload asks for them.
        return pickle.loads(payload, buffers=(buffer.open() for buffer in buffers))
    except (BuildFailed, MemoryError):
        raise
    except Exception as error:
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        # If a module fails, its own lines in the traceback say where. Don't import it again for a note.
        if not any(code.co_name == "<module>" and code.co_filename[0] != "<" for code in codes):
            error.add_note(_note(payload, buffers, error))
        raise


def _note(payload: bytes, buffers: Iterable[Openable], error: Exception) -> str:
    """Return a note that says what could not be made from the payload, and how to avoid that."""
    # Don't build the values of Deferreds a second time.
    token = building.set(lambda function: None)
    try:
        contents = (buffer.open() for buffer in buffers)
        broken = broken_payload.find(payload, contents, error, _loaded_code)
    finally:
        building.reset(token)
    if broken is None:
        return "(raised while the worker made what the node is given)"
    part = broken.what
    if not broken.user:
        return f"(raised while the worker made {part}, which the node is given)"
    return (
        f"(raised while the worker made {part}, for {broken.user}, which is of the script. That travels by"
        " value, with all that it uses. Move what cannot be made into a module of its own, which workers"
        " import; or make it where the node runs, in the constructor or in setup= of lp.Program)"
    )


class _Pickler(ClientPickler):
    into_main = True
    packer: Packer
    of_arrays: dict[type, tensors.Reducer]

    def reducer_override(self, obj: Any) -> Any:
        """Replace the objects that the module's docstring lists. cloudpickle handles all others."""
        if isinstance(obj, Handle) and id(obj) not in self.packer.edges:
            raise DefinitionError(
                f"{obj!r} is hidden where the graph cannot see it (a global variable, or the state of a"
                " C object). Pass it to the node as an argument."
            )
        if isinstance(obj, Address):
            name = self.packer.address_names.get(obj.uid)
            if name is None:
                raise DefinitionError(
                    f"{obj!r} belongs to no node of this program: node.allocate_address(address)"
                )
            state = {"kind": obj.kind, "uid": obj.uid, "owner": obj.owner, "name": name}
            return Address, (obj.role,), state
        if isinstance(obj, Code):
            code = self.packer.code
            key = id(obj.function)
            if key not in code:
                code[key] = self.packer.dumps(obj.function)
            buffers = [pickle.PickleBuffer(buffer.memory) for buffer in code[key].buffers]
            return _loaded_code, (code[key].stream, buffers)
        if isinstance(obj, Program):
            return Program, (obj.name,)  # without its nodes, since it must not be launched there
        if isinstance(obj, Node):
            raise DefinitionError(
                f"{obj!r} was passed to another node; pass its handle: what program.add_node() returned,"
                " or node.create_handle()"
            )
        reducer = self.of_arrays.get(type(obj))
        if reducer is not None and _is_large(obj):
            arrays = self.packer.reduced
            if id(obj) not in arrays:
                arrays[id(obj)] = obj, reducer(obj)
            return arrays[id(obj)][1]
        of_absl = absl_flags.reduced(obj)
        if of_absl is not NotImplemented:
            return of_absl
        reduced = super().reducer_override(obj)
        return random_numbers.without_generators(reduced, self.packer.generators)


def _is_large(array: Any) -> bool:
    try:
        return bool(array.nbytes >= LARGE)
    except Exception:  # torch raises RuntimeError for sparse tensors
        return False


def _loaded_code(stream: bytes, buffers: Iterable[Any] = ()) -> Code:
    return Code(pickle.loads(stream, buffers=buffers))


def _from_user(error: Exception) -> Exception | None:
    """Return the error, with its traceback from the user's first line on; None if there is no such line."""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if user_code.is_of_user(file) and not file.startswith(PICKLER):
            return error.with_traceback(trace)
        trace = trace.tb_next
    return None


def _hint_for_code(place: Found) -> str:
    """Return a text that says which code uses the object, and what to do; empty if no code uses it."""
    while place.parent is not None:
        owner = place.parent.value
        if isinstance(owner, types.FunctionType | type):
            name = user_code.name_of(owner)
            is_named, _, variable = place.step.strip("<>.").rpartition(" ")
            kind = {"global": "global", "closure": "variable"}.get(is_named, "attribute")
            origin = "of the script" if owner.__module__ == "__main__" else "made in a function"
            return (
                f"{name} is {origin}, so it travels by value, with its {kind} {variable}. Move {name} into a"
                " module of its own, which workers import; or make it where the node runs: in the"
                " constructor, or in setup= of lp.Program."
            )
        place = place.parent
    return ""


def qualified(cls: type) -> str:
    """Return the name of a class as a person would write it: `ValueError`, `queue.Empty`."""
    name = cls.__qualname__
    return name if cls.__module__ == "builtins" else f"{cls.__module__}.{name}"


def _parts(value: Any) -> Iterator[Step]:
    """Yield `children` and, for code that is sent by value, also its globals and methods."""
    yield from children(value)
    if isinstance(value, types.FunctionType):
        for name in value.__code__.co_names:
            if name in value.__globals__:
                yield f".<global {name}>", value.__globals__[name]
    if isinstance(value, type):
        for name, member in vars(value).items():
            if not isinstance(member, (types.GetSetDescriptorType, type(None))):
                yield f".{name}", member
    elif isinstance(value, property):
        yield from ((f".{name}", getattr(value, name)) for name in ("fget", "fset", "fdel"))
    elif isinstance(value, staticmethod | classmethod):
        yield ".__func__", value.__func__
    elif type(value).__module__ == "__main__":
        yield ".__class__", type(value)
