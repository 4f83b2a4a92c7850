"""What a function or a class raises by statements of its own, and where its docstring should say so.

What it raises by calls of others is not seen.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator

from docs.site.names import PublicName

_OURS = ("NotImplementedError", "AssertionError")


def undocumented(public: PublicName) -> Iterator[str]:
    """`Queue.put: QueueFull`, for what is raised in there without a `Raises:` in the docstring."""
    if public.is_module or not (inspect.isclass(public.value) or inspect.isfunction(public.value)):
        return
    node = _definitions(public.value.__module__)[public.own_name]
    if isinstance(node, ast.FunctionDef):
        raising = [(public.own_name, public.doc, node)]
    else:
        raising = [
            (f"{public.own_name}.{method.name}", doc, method)
            for method in ast.iter_child_nodes(node)
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
            and (doc := _docstring(public, method.name)) is not None
        ]
    for name, doc, function in raising:
        if (errors := sorted(set(_raised(function)))) and "Raises:" not in doc:
            yield f"{name}: {', '.join(errors)}"


@functools.cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """Of a module; of overloads the last, which has the body."""
    body = ast.parse(inspect.getsource(sys.modules[module])).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _docstring(public: PublicName, method: str) -> str | None:
    """Where a method's errors belong: those of the constructor to the class. None: it is not public."""
    if method in ("__init__", "__post_init__"):
        return public.doc
    if method.startswith("_"):
        return None
    return (
        inspect.getdoc(getattr(public.value, method)) or ""
    )  # that of the base class, if it has none


def _raised(function: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.Raise) and child.exc is not None:
            error = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            if (name := ast.unparse(error)) not in _OURS:
                yield name
        yield from _raised(child)
