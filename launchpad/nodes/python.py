"""PyNode and PyClassNode: nodes that run a function, or an object's `run()`, and serve no calls."""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

from launchpad.courier.server.event_loop import EventLoop
from launchpad.errors import DefinitionError
from launchpad.handle import ClientPickler, Handle
from launchpad.nodes import hooks
from launchpad.nodes.base import HandleT, Node
from launchpad.nodes.hooks import PeriodicSave
from launchpad.resources import PythonProcess
from launchpad.runtime import context, user_code
from launchpad.runtime.executable import Code, Executable, Run


class PyHandle(Handle[NoReturn]):
    """The handle of a node that serves no calls."""

    can_be_dereferenced = False

    def dereference(self) -> NoReturn:
        """Raise TypeError, because the node serves nothing that could be called."""
        raise TypeError(
            f"{self!r} cannot be dereferenced: a PyNode or PyClassNode serves no calls. Use a"
            " CourierNode if others are to call it."
        )


class UnservedNode(Node[PyHandle]):
    """A node that serves no calls."""

    def create_handle(self) -> PyHandle:
        return PyHandle(self)


def _no_constructor(node: str, given: object) -> str:
    """Return the text of the error for what is neither a class nor a function."""
    return (
        f"{node} needs a class or a function, got {given!r}. Give the class and its arguments,"
        f" lp.{node}({type(given).__name__}, …): the worker builds the object"
    )


class ConstructorNode(Node[HandleT]):
    """A node described by a constructor and its arguments: the base of the usual kinds of node."""

    _may_be_configured = False

    def __init__(self, constructor: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        if not callable(constructor):
            raise TypeError(_no_constructor(type(self).__name__, constructor))
        super().__init__()
        self._code = Code(constructor)
        self._args = args
        self._kwargs = kwargs

    def replica(self) -> Self:
        replica = super().replica()
        # They may have been replaced since the node was made.
        replica._args = self._args
        replica._kwargs = self._kwargs
        return replica

    def check_definition(self, *, is_final: bool = True) -> None:
        """Check that the constructor takes these arguments.

        If `is_final` is False, arguments may be missing, because they may still be set.
        """
        run = getattr(type(self), "run", None)
        if run is not None:
            raise DefinitionError(
                f"{self!r} has a method run ({run.__qualname__}), which nothing would call: a node of a kind"
                " of your own gives what a worker runs in to_executable()"
            )
        user_code.check_arguments(
            repr(self),
            self._code.function,
            self._args,
            self._kwargs,
            may_lack_some=self._may_be_configured and not is_final,
        )

    def arguments(self) -> dict[str, Any]:
        """Return the constructor and its arguments. The constructor's closure may hold handles, too."""
        return {"constructor": self._code.function, "args": self._args, "kwargs": self._kwargs}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._code.name})"


class PyNode(UnservedNode, ConstructorNode[PyHandle]):
    """A node that runs a function once.

    Example:
        program.add_node(lp.PyNode(train, learner, num_steps=1000), label="trainer")

    An `async def` runs on the worker's event loop, which is not in the worker's main thread.
    """

    def check_definition(self, *, is_final: bool = True) -> None:
        """Check also that the function is not a generator."""
        user_code.check_function(repr(self), self._code.function)
        super().check_definition(is_final=is_final)

    def to_executable(self) -> Executable:
        return CallFunction(self._code, self._args, self._kwargs)


class RunnableNode(ConstructorNode[HandleT]):
    """A node whose object may have a `run()`. Tests can switch `run()` off."""

    _runs = True
    _needs_run = False

    def check_definition(self, *, is_final: bool = True) -> None:
        """Check also that the constructor builds an object, and that its `run()` is not a generator.

        If the kind of node needs a `run()`, check that there is one.
        """
        function = self._code.function
        user_code.check_constructor(repr(self), function)
        if self._runs:
            user_code.check_run(repr(self), function, is_needed=self._needs_run)
        super().check_definition(is_final=is_final)

    def disable_run(self) -> None:
        """Let the worker build, and serve, the object without calling its `run()`. For unit tests."""
        self._runs = False

    def enable_run(self) -> None:
        """Undo `disable_run`."""
        self._runs = True

    def construct(self) -> Any:
        """Build the object in this process, with clients instead of handles, as the worker does. For tests.

        The constructor gets copies of its arguments, made by pickle.

        Example:
            node = lp.PyClassNode(Coordinator, workers)
            node.disable_run()
            program.add_node(node, label="coordinator")
            with lp.launch(program, "test_mp"):
                assert node.construct().step(0) > 0

        Raises:
            NotRunningError: the program that the handles belong to is not running.
        """
        with io.BytesIO() as file:
            ClientPickler(file, protocol=5).dump((self._code.function, self._args, self._kwargs))
            function, args, kwargs = pickle.loads(file.getvalue())
        return function(*args, **kwargs)

    # dm-launchpad has this method under this name.
    _construct_instance = construct


class PyClassNode(UnservedNode, RunnableNode[PyHandle]):
    """A node that builds an object, then calls its `run()`, which may be an `async def`.

    Example:
        program.add_node(lp.PyClassNode(Actor, learner, seed=1), label="actor")

    `add_node` refuses a class without `run()`: nothing would run, and the worker would never end. If the
    class works from its constructor on, call `disable_run()` first.
    """

    _needs_run = True

    def to_executable(self) -> Executable:
        return BuildObject(self._code, self._args, self._kwargs, self._runs)


@dataclass
class Calling(Executable):
    """A base for executables that call a function or a class."""

    function: Code
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    _loop: EventLoop | None = field(default=None, init=False)

    def release(self) -> None:
        """Call the exit handlers. Coroutine functions among them run on the event loop."""
        loop = self._loop
        # There is no loop if the worker was stopped before `open`.
        if loop is None:
            super().release()
            return
        user_code.call_exit_handlers(loop)

    def close(self) -> None:
        """Close the event loop, and end what still runs on it."""
        super().close()
        if self._loop is not None:
            self._loop.close()


class CallFunction(Calling):
    """An executable that calls a function once."""

    def open(self) -> Run:
        self._loop = EventLoop(context.current().name)
        call = functools.partial(self.function, *self.args, **self.kwargs)
        return user_code.until_done(call, self._loop)


@dataclass
class BuildObject(Calling):
    """An executable that builds an object and runs it."""

    runs: bool
    _built: object = field(default=None, init=False)
    _saves: PeriodicSave | None = field(default=None, init=False)

    def open(self) -> Run | None:
        self._loop = EventLoop(context.current().name)
        self.build(self._loop)
        return self.run_on(self._loop)

    def save(self) -> None:
        """End the periodic save, then let the object save itself."""
        if self._saves is not None:
            self._saves.end()
        # There is no object if the worker was stopped before `open` had built it.
        if self._built is None or self._loop is None:
            return
        hooks.save(self._built, self._loop)

    def release(self) -> None:
        """End the periodic save first, because a closed object cannot save itself. Then release."""
        if self._saves is not None:
            self._saves.end()
        super().release()

    def close(self) -> None:
        """End the periodic save, which needs the event loop, then close."""
        if self._saves is not None:
            self._saves.end()
        super().close()

    def build(self, loop: EventLoop) -> Any:
        """Build the object, and let it restore its state if there was an earlier attempt or launch."""
        me = context.current()
        # Read this before the constructor runs: the constructor may create files that look as if an earlier
        # launch had left them.
        is_resumed = me.is_resumed
        built = self.function(*self.args, **self.kwargs)
        if is_resumed:
            hooks.restore(built, loop)
        self._built = built
        close = self.find_close(built)
        if close is not None:
            me.exits.add(close)
        if me.link.policy.save_every_s is not None:
            # If an interruption came between the thread's start and the assignment, `close` would not find
            # the thread.
            with me.stop.interruption.forbidden():
                self._saves = PeriodicSave(
                    functools.partial(self.save_while_it_runs, built, loop),
                    me.link.policy.save_every_s,
                )
        return built

    def find_close(self, built: object) -> Callable[[], object] | None:
        """Return the function that closes the object at the end, or None."""
        named_close = hooks.find_close(built)
        return None if named_close is None else named_close[1]

    def save_while_it_runs(self, built: object, loop: EventLoop) -> None:
        """Let the object save itself, from another thread."""
        hooks.save(built, loop)

    def run_on(self, loop: EventLoop) -> Run | None:
        """Return a function that runs the object; None if it has no `run`, or `run` is switched off."""
        run = getattr(self._built, "run", None) if self.runs else None
        return user_code.until_done(run, loop) if callable(run) else None


# Programs for dm-launchpad import PythonProcess from a module of this name, inside this one. In dm-launchpad,
# this module is a package.
_ALIAS = f"{__name__}.local_multi_processing"
sys.modules[_ALIAS] = types.ModuleType(_ALIAS)
vars(sys.modules[_ALIAS])["PythonProcess"] = PythonProcess
