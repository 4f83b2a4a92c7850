"""Whether a thread is as a method finds the threads of its own server.

Much of what libraries call a context belongs to a thread: a running event loop, `torch.no_grad()`, a
trace of JAX, the exception that is being handled. A method that ran in the middle of its caller's
would behave as it never does in a process of its own.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

_modules = sys.modules
_exception = sys.exception


def is_plain() -> bool:
    """Whether nothing of this thread's state would change what a method does.

    JAX and TensorFlow cannot be asked; where they are loaded no thread is taken for plain.
    """
    if _exception() is not None:
        return False  # it would become the context of what the method raises
    if "asyncio" in _modules and _is_in_event_loop(_modules["asyncio"]):
        return False
    if "torch" in _modules or "jax" in _modules or "tensorflow" in _modules:
        return _has_plain_libraries()
    return True


def _is_in_event_loop(asyncio: Any) -> bool:
    try:
        return asyncio._get_running_loop() is not None
    except AttributeError:  # half imported, by another thread
        return False


def _has_plain_libraries() -> bool:
    if "jax" in _modules or "tensorflow" in _modules:
        return False
    try:
        return _is_plain_torch(_modules["torch"])
    except (AttributeError, TypeError):  # half imported, or a release that we do not know
        return False


def _is_plain_torch(torch: ModuleType | Any) -> bool:
    return (
        torch.is_grad_enabled()
        and not torch.is_inference_mode_enabled()
        and not torch.is_autocast_enabled()
        and not torch.is_autocast_enabled("cpu")
        and torch._C._len_torch_function_stack() == 0
        and torch._C._len_torch_dispatch_stack() == 0
    )
