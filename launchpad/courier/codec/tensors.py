"""Reducers for arrays and tensors: numpy's as in arrays.py, those of torch and jax as buffers.

By themselves, torch and jax copy every byte into the stream; torch does it through a zip archive. Here a
tensor in main memory is pickled as a buffer, and rebuilt over the memory into which the buffer was received.
A tensor on a GPU is copied to main memory first, and from the buffer to the receiver's GPU. This file imports
no library: a process that has a tensor has imported its library already.

Other tensors (sparse, quantized) are pickled as their library does it, but a view is sent without the rest
of its base. A tensor that is part of a graph of gradients is refused, because torch would send a copy without
the graph.

States are pickled as torch does it (`native_reducers`), so that a process without launchpad can read them. In
payloads, contiguous tensors are pickled as buffers, and others as torch does it (`strided_reducers`), so that
each tensor keeps its strides.
"""

from __future__ import annotations

import copyreg
import pickle
import sys
from collections.abc import Callable
from typing import Any

from launchpad.courier.codec import arrays, descriptors

Reducer = Callable[[Any], Any]

_reducers: dict[type, Reducer] = {}
_native_reducers: dict[type, Reducer] = {}
_unseen = {"numpy", "torch", "jax", "multiprocessing.connection"}  # not imported yet
_table: dict[type, Reducer] = {}
_table_state: tuple[int, int] = (0, 0)


def reducers() -> dict[type, Reducer]:
    """Return reducers for the types of the libraries that are imported by now."""
    modules = sys.modules
    # Look for one of the names that a library defines last: without it, another thread is still importing
    # the library.
    if "numpy" in _unseen and hasattr(modules.get("numpy"), "sctypeDict"):
        _reducers.update(arrays.reducers(modules["numpy"]))
        _unseen.discard("numpy")
    if "torch" in _unseen and hasattr(modules.get("torch"), "compile"):
        torch = modules["torch"]
        _reducers[torch.Tensor] = _reduce_torch
        _reducers[torch.nn.Parameter] = _reduce_parameter
        _native_reducers[torch.Tensor] = _reduce_natively
        _unseen.discard("torch")
    if "jax" in _unseen and hasattr(modules.get("jax._src.array"), "ArrayImpl"):
        _reducers[modules["jax._src.array"].ArrayImpl] = _reduce_jax
        _unseen.discard("jax")
    pipes = modules.get("multiprocessing.connection")
    if "multiprocessing.connection" in _unseen and hasattr(pipes, "wait"):
        refusals = descriptors.reducers(pipes)
        _reducers.update(refusals)
        _native_reducers.update(refusals)
        _unseen.discard("multiprocessing.connection")
    return _reducers


def native_reducers() -> dict[type, Reducer]:
    """Return the reducers that pickle tensors so that they can be unpickled without us."""
    reducers()
    return _native_reducers


def strided_reducers() -> dict[type, Reducer]:
    """Return `reducers`, with one that keeps the strides for torch's tensors that are not contiguous."""
    table = reducers()
    if "torch" in _unseen:
        return table
    return {**table, sys.modules["torch"].Tensor: _reduce_with_strides}


def dispatch_table() -> dict[type, Reducer]:
    """Return the dispatch table for a Pickler: `reducers` and those of `copyreg`.

    The table is empty if there are no `reducers`.
    """
    global _table, _table_state
    state = len(sys.modules), len(copyreg.dispatch_table)
    if state != _table_state:
        ours = reducers()
        table = {**copyreg.dispatch_table, **ours} if ours else {}
        _table = table if table != _table else _table
        if not _unseen & sys.modules.keys():
            _table_state = state
    return _table


def check(value: object) -> None:
    """Raise RuntimeError for a tensor whose gradient would be cut, as `torch.multiprocessing` does."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)  # None while torch is being imported
    if kind is not None and isinstance(value, kind):
        tensor: Any = value
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError(
                f"a tensor of shape {tuple(tensor.shape)} that belongs to a graph of gradients "
                f"({tensor.grad_fn}) cannot be sent: its gradient would be cut, as no graph leads from one "
                "process to another. Send tensor.detach(), or the gradients themselves."
            )


def _reduce_torch(tensor: Any) -> Any:
    check(tensor)
    torch = sys.modules["torch"]
    is_plain = (
        tensor.device.type in ("cpu", "cuda")
        and tensor.layout == torch.strided
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not vars(tensor)
    )
    if not is_plain:
        return _reduce_natively(tensor)
    if tensor.device.type == "cuda":
        copy = tensor.detach().cpu()
        return rebuild_on_gpu, (copy, str(tensor.device), tensor.requires_grad)
    flat = tensor.detach().contiguous().reshape(-1)
    data = pickle.PickleBuffer(flat.view(torch.uint8).numpy())
    name = str(tensor.dtype).removeprefix("torch.")
    return rebuild_torch, (data, name, tuple(tensor.shape), tensor.requires_grad)


def _reduce_with_strides(tensor: Any) -> Any:
    check(tensor)
    is_strided = tensor.layout == sys.modules["torch"].strided
    if is_strided and tensor.is_contiguous():
        return _reduce_torch(tensor)
    return _reduce_natively(tensor)


def _reduce_natively(tensor: Any) -> Any:
    """Reduce a tensor as torch does it, except that a view is sent without the rest of its base.

    Nothing is lost by this, because a base and its view are no longer connected once they are pickled.
    """
    torch = sys.modules["torch"]
    is_view = tensor.layout == torch.strided and tensor.untyped_storage().nbytes() > tensor.nbytes
    if is_view:
        attributes = vars(tensor)
        tensor = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        vars(tensor).update(attributes)
    return tensor.__reduce_ex__(5)


def rebuild_torch(data: Any, dtype: str, shape: tuple[int, ...], requires_grad: bool) -> Any:
    """Return the tensor over the memory of `data`."""
    import torch

    kind = getattr(torch, dtype)
    if not memoryview(data).nbytes:
        tensor = torch.empty(shape, dtype=kind)
    else:
        tensor = torch.frombuffer(data, dtype=kind).reshape(shape)
    return tensor.requires_grad_(requires_grad)


def rebuild_on_gpu(copy: Any, device: str, requires_grad: bool) -> Any:
    """Return a copy of the tensor on the GPU that has the same number in this process.

    Raises:
        RuntimeError: this process sees no such GPU.
    """
    import torch

    number = int(device.partition(":")[2] or 0)
    if number >= torch.cuda.device_count():
        raise RuntimeError(
            f"a tensor of shape {tuple(copy.shape)} on the sender's {device} has arrived, and this process"
            f" sees {torch.cuda.device_count()} GPUs. Send tensor.cpu(), or give this worker a GPU:"
            " lp.Resources(gpus=1)"
        )
    return copy.to(device).requires_grad_(requires_grad)


def _reduce_parameter(parameter: Any) -> Any:
    if parameter.device.type not in ("cpu", "cuda") or vars(parameter):
        return parameter.__reduce_ex__(5)
    return sys.modules["torch"].nn.Parameter, (parameter.data, parameter.requires_grad)


def _reduce_jax(array: Any) -> Any:
    import numpy as np

    try:
        if not array.is_fully_addressable or len(array.devices()) != 1 or array.weak_type:
            return array.__reduce__()
        flat = np.ascontiguousarray(np.asarray(array)).reshape(-1)
        data = pickle.PickleBuffer(flat.view(np.uint8).data)  # bfloat16 has no buffer of its own
        return rebuild_jax, (data, str(array.dtype), array.shape)
    except TypeError:  # keys of random generators, and other arrays that numpy doesn't have
        return array.__reduce__()


def rebuild_jax(data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return the array with this content, on this process's default device."""
    import jax
    import numpy as np

    flat = np.frombuffer(data, dtype=jax.numpy.dtype(dtype))
    return jax.numpy.asarray(flat.reshape(shape))
