"""ZeRO's stages. Each cuts more of what ranks would have copies of.

bytes in each of N ranks   parameters   gradients   Adam's state   sent in a step, of one micro-batch
stage 0                    2Ψ           2Ψ          12Ψ            4Ψ (N-1)/N
stage 1                    2Ψ           2Ψ          12Ψ/N          4Ψ (N-1)/N
stage 2                    2Ψ           2Ψ/N        12Ψ/N          4Ψ (N-1)/N
stage 3                    2Ψ/N         2Ψ/N        12Ψ/N          6Ψ (N-1)/N
"""

import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

import launchpad as lp
from examples._shared.adam import adam
from examples._shared.bfloat16 import Half, to_float, to_half
from examples._shared.data import Array
from examples._shared.networks import layers_of
from examples._shared.problem import Problem


def padded(values: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """Append zeros to rows, so that they can be cut into n equal parts."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % n)])


def part(values: npt.NDArray[Any], rank: int, n: int) -> npt.NDArray[Any]:
    """Return one of n parts of padded rows, as a view."""
    return np.split(values, n, axis=-1)[rank]


class Transient:
    """A watch on arrays that should be dropped soon; `most` is the most numbers that existed at once."""

    now = most = 0

    def watch(self, array: Array) -> Array:
        """Count the array as long as anything refers to it. Return it."""
        self._add(array.size)
        weakref.finalize(array, self._add, -array.size)
        return array

    def _add(self, size: int) -> None:
        self.now += size
        self.most = max(self.most, self.now)


class Sharded:
    """A model with Adam, of which each rank keeps a part. What it keeps and sends is bfloat16.

    Args:
        stage: What is cut: nothing at 0, Adam's state from 1, gradients from 2, parameters at 3.
    """

    def __init__(self, group: lp.Collective, problem: Problem, stage: int) -> None:
        self.group = group
        self.stage = stage
        self.rate = problem.learning_rate
        self.sizes = problem.network.sizes
        self.networks = [problem.network.part(i, i + 1) for i in range(len(self.sizes))]
        self.steps = 0
        self.began_at = 0  # the step of the checkpoint
        self.wide = Transient()
        self.parameters: list[Half] = []
        self.gradients: list[Half] = []
        self.states: list[npt.NDArray[np.float32]] = []
        for layer in layers_of(problem.network, problem.first_parameters):
            whole = padded(layer, group.size)
            own = part(whole, group.rank, group.size)
            self.parameters.append(to_half(own if stage >= 3 else whole))
            self.gradients.append(to_half(0 * (own if stage >= 2 else whole)))
            master = own if stage >= 1 else whole
            self.states.append(np.array([master, 0 * master, 0 * master], np.float32))

    def forward(self, inputs: Array) -> list[Array]:
        """Return the inputs, and the outputs of each layer."""
        values = [inputs]
        for i, network in enumerate(self.networks):
            values.append(network.forward(self.layer(i), values[-1])[-1])
        return values

    def backward(self, values: list[Array], gradient: Array) -> None:
        """Add the gradient of each layer to those of the micro-batches before."""
        for i, network in reversed(list(enumerate(self.networks))):
            gradient, own = network.backward(self.layer(i), values[i : i + 2], gradient)
            new = to_half(padded(self.wide.watch(own), self.group.size))
            del own
            if self.stage >= 2:
                (new,) = self._scattered([new])
            self.gradients[i] = to_half(to_float(self.gradients[i]) + to_float(new))

    def update(self) -> None:
        """Do a step of Adam with the gradients since the last one."""
        self.steps += 1
        gradients = self.gradients if self.stage >= 2 else self._scattered(self.gradients)
        if self.stage == 0:
            gradients = self._gathered(gradients)
        for state, gradient in zip(self.states, gradients, strict=True):
            exact = state.astype(np.float64)
            wide = to_float(gradient).astype(np.float64)
            change, moments = adam(exact[1:], wide, self.steps, self.rate)
            # A parameter in bfloat16 would not change if 1/256 of it were more than the change.
            state[0] = exact[0] + change
            state[1:] = moments
        self.write()
        for gradient in self.gradients:
            gradient[:] = 0

    def write(self) -> None:
        """Round the master copies to parameters. All ranks do it at the same time."""
        self.parameters = [to_half(state[0]) for state in self.states]
        if self.stage in (1, 2):
            self.parameters = self._gathered(self.parameters)

    def layer(self, i: int) -> Array:
        """Return a layer's parameters for arithmetic. Use them at once: they aren't kept."""
        whole = self.parameters[i]
        if self.stage >= 3:
            (whole,) = self._gathered([whole])
        return self.wide.watch(to_float(whole)[: self.sizes[i]].astype(np.float64))

    def _gathered(self, layers: list[Half]) -> list[Half]:
        """Return whole layers, of which each rank has a part."""
        ranks = self.group.all_gather(layers)
        return [np.concatenate(parts) for parts in zip(*ranks, strict=True)]

    def _scattered(self, layers: list[Half]) -> list[Half]:
        """Return this rank's part of the mean over all ranks: a reduce-scatter, with sums in float64."""
        n = self.group.size
        ranks = self.group.all_to_all([[part(each, r, n) for each in layers] for r in range(n)])
        by_layer = [np.stack([to_float(each) for each in own]) for own in zip(*ranks, strict=True)]
        return [to_half(rows.mean(axis=0, dtype=np.float64)) for rows in by_layer]
