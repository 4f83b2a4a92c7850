"""Errors for names that don't exist, which say the name that does.

    did_you_mean        the end of an error's text, with a similar name
    hint_for            the same, for names that other systems have too
    no_attribute        the error for an unknown attribute
    Explained           a class whose unknown attributes raise it
    explains_arguments  a decorator for functions and classes, which explains unknown keyword arguments

Users of other systems bring names along, such as `.remote` or `num_gpus=`. Two modules have tables of what
stands for them here: `courier/client/other_names.py` and `launchpad/other_names.py`. A table is given by its
place, as `module:TABLE`, and is imported when an error needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

C = TypeVar("C", bound=Callable[..., Any])


def did_you_mean(
    given: str, known: Iterable[str], shown: Callable[[str], str] = str, *, cutoff: float = 0.6
) -> str:
    """Return ` Did you mean run?`, for the end of an error's text; empty if no known name is similar."""
    import difflib

    near = difflib.get_close_matches(given, list(known), 1, cutoff)
    return f" Did you mean {shown(near[0])}?" if near else ""


def hint_for(name: str, known: Iterable[str], table: str) -> str:
    """Return ` Use …` if the table has the name, else what `did_you_mean` returns."""
    import pkgutil

    other_names: Mapping[str, str] = pkgutil.resolve_name(table)
    instead = other_names.get(name)
    if instead is not None:
        return f" Use {instead}."
    return did_you_mean(name, known)


def no_attribute(owner: str, name: str, known: Iterable[str], table: str) -> AttributeError:
    """Return the error for an attribute that `owner` lacks."""
    # `copy`, `pickle` and `inspect` look up private names on every object, and catch the error.
    hint = "" if name.startswith("_") else hint_for(name, known, table)
    return AttributeError(f"{owner} has no attribute {name!r}.{hint}")


class Explained:
    """A class whose unknown attributes raise an error that says the right name."""

    _other_names: ClassVar[str]
    """The place of the table of names from elsewhere."""

    # Hide this from type checkers, which would otherwise accept any attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self)
            known = [own_name for own_name in dir(kind) if not own_name.startswith("_")]
            raise no_attribute(kind.__name__, name, known, kind._other_names)


def explains_arguments(table: str) -> Callable[[C], C]:
    """Return a decorator: unknown keyword arguments raise a TypeError that says the right name.

    It is for functions and classes without `**kwargs`.
    """

    def decorate(target: C) -> C:
        is_class = isinstance(target, type)
        function: Callable[..., Any] = vars(target)["__init__"] if is_class else target

        @functools.wraps(function)
        def explained(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # pytest and IPython show the line of the caller
            try:
                return function(*args, **kwargs)
            except TypeError:
                import inspect

                known = inspect.signature(function).parameters
                unknown = [argument for argument in kwargs if argument not in known]
                if not unknown:
                    raise
            hint = hint_for(unknown[0], known, table)
            raise TypeError(f"{target.__name__}() takes no argument {unknown[0]!r}.{hint}")

        if is_class:
            target.__init__ = explained  # type: ignore[method-assign]
            return target
        return explained  # type: ignore[return-value]

    return decorate
