"""A network of torch for systems that exchange flat arrays of numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from examples._shared.data import Array, Data
from examples._shared.networks import Loss


class TorchNetwork:
    """The layers of a torch module. Parameters, inputs and outputs are arrays of float64.

    Layers must not change from call to call, as batch normalization does, and must not be random, as dropout
    is: `backward` computes each layer's outputs again, from its inputs.

    Example:
        module = nn.Sequential(nn.Linear(13, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 3))
        problem = Problem(wine, TorchNetwork(module))

    Args:
        module: The layers. A module that is not a `torch.nn.Sequential` is one layer.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        layers = module if isinstance(module, torch.nn.Sequential) else [module]
        self._layers = [layer.double() for layer in layers]

    @property
    def sizes(self) -> list[int]:
        """The number of parameters of each layer."""
        return [sum(each.numel() for each in layer.parameters()) for layer in self._layers]

    def first_parameters(self, seed: int = 0) -> Array:
        """Return the parameters that the module was made with. They don't depend on the seed."""
        tensors = [each.detach() for layer in self._layers for each in layer.parameters()]
        return np.concatenate([tensor.numpy().ravel() for tensor in tensors])

    def part(self, first: int, end: int) -> TorchNetwork:
        """Return the layers from `first` to `end`, without the latter, as a network of their own."""
        return TorchNetwork(torch.nn.Sequential(*self._layers[first:end]))

    def forward(self, parameters: Array, inputs: Array) -> list[Array]:
        """Return the inputs and the outputs of each layer."""
        values = [inputs]
        with torch.no_grad():
            for layer, own in zip(self._layers, self._tensors(parameters), strict=True):
                outputs = torch.func.functional_call(layer, own, torch.from_numpy(values[-1]))
                values.append(outputs.numpy())
        return values

    def backward(
        self, parameters: Array, values: list[Array], gradient: Array
    ) -> tuple[Array, Array]:
        """Turn the gradient by the last outputs into the gradients by the inputs and by the parameters."""
        received = torch.from_numpy(gradient)
        by_parameters: list[Array] = []
        tensors = self._tensors(parameters)
        for layer, own, value in reversed(list(zip(self._layers, tensors, values, strict=False))):
            inputs = torch.from_numpy(value).requires_grad_()
            for tensor in own.values():
                tensor.requires_grad_()
            outputs = torch.func.functional_call(layer, own, inputs)
            received, *of_layer = torch.autograd.grad(outputs, [inputs, *own.values()], received)
            by_parameters[:0] = [each.numpy().ravel() for each in of_layer]
        return received.numpy(), np.concatenate(by_parameters or [np.empty(0)])

    def _tensors(self, parameters: Array) -> list[dict[str, torch.Tensor]]:
        """Return copies of each layer's parameters, by name."""
        rest = torch.tensor(parameters)
        tensors = []
        for layer in self._layers:
            own = {}
            for name, parameter in layer.named_parameters():
                own[name] = rest[: parameter.numel()].reshape(parameter.shape)
                rest = rest[parameter.numel() :]
            tensors.append(own)
        return tensors


def torch_loss(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Loss:
    """Return a loss for `Problem`, made of torch's, such as `torch.nn.functional.huber_loss`."""

    def loss(outputs: Array, data: Data) -> tuple[float, Array]:
        tensor = torch.from_numpy(outputs).requires_grad_()
        value = function(tensor, torch.from_numpy(data.targets))
        by_outputs: Any = torch.autograd.grad(value, tensor)[0]
        return value.item(), by_outputs.numpy()

    return loss
