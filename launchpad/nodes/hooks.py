"""The hooks of an object that wants to outlive a restart: `save()` and `restore()`."""

from __future__ import annotations

import inspect

from launchpad import context


def restore(built: object) -> None:
    """Calls `built.restore()`, if it has one that takes no arguments and this is not the first attempt."""
    if context.current().attempt > 1:
        _call(built, "restore")


def save(built: object) -> None:
    """Calls `built.save()`, if it has one that takes no arguments."""
    _call(built, "save")


def _call(built: object, name: str) -> None:
    hook = getattr(built, name, None)
    if callable(hook) and _takes_nothing(hook):
        hook()


def _takes_nothing(hook: object) -> bool:
    """A model's `save(path)` is not meant for us."""
    try:
        inspect.signature(hook).bind()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True
