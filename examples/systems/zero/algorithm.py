"""ZeRO's stages. Each changes a little of the one before.

each of N ranks keeps   parameters   gradients   Adam's state   and sends in a step
stage 0                 Ψ            Ψ           2Ψ             2Ψ (N-1)/N
stage 1                 Ψ            Ψ           2Ψ/N           2Ψ (N-1)/N
stage 2                 Ψ            Ψ/N         2Ψ/N           2Ψ (N-1)/N
stage 3                 Ψ/N          Ψ/N         2Ψ/N           3Ψ (N-1)/N
"""

import numpy as np

from examples._shared.data import Array
from examples.systems.zero.adam import Adam
from examples.systems.zero.group import Group
from examples.systems.zero.parts import fill, padded, part
from examples.systems.zero.transient import Transient


class Stage0:
    """Data parallelism: each rank keeps everything, and all-reduce averages the gradients."""

    def __init__(self, group: Group, layers: list[Array]) -> None:
        self.group = group
        self.sizes = [len(layer) for layer in layers]
        self.steps = 0
        self.parameters = [self._kept(padded(layer, group.size)) for layer in layers]
        self.gradients = [np.empty(0)] * len(layers)
        self.adam = Adam(sum(map(len, self.own())))
        self.gathered = Transient()
        self.unscattered = Transient()

    def layer(self, i: int) -> Array:
        """Return a layer's parameters. Use them at once: they aren't kept."""
        return self.parameters[i][: self.sizes[i]]

    def give(self, i: int, gradient: Array) -> None:
        """Take a layer's gradient on this rank's examples."""
        self.gradients[i] = padded(gradient, self.group.size)

    def update(self) -> None:
        """Do a step of Adam, once all layers have their gradients."""
        self.steps += 1
        change = self.adam.change(np.concatenate(self._reduced()), self.steps)
        self.write(np.concatenate(self.own()) + change)

    def own(self) -> list[Array]:
        """Return the part of each layer that this rank updates. Writing to it changes the parameters."""
        return self.parameters

    def write(self, new: Array) -> None:
        """Set the part that this rank updates. The other ranks call this at the same time."""
        fill(self.own(), new)

    def _kept(self, layer: Array) -> Array:
        return layer

    def _reduced(self) -> list[Array]:
        self.gradients = self.group.all_reduce(self.gradients, op="mean")
        return self.gradients


class Stage1(Stage0):
    """Each rank has Adam's state for its part only. It updates that part; then all gather the parts."""

    def own(self) -> list[Array]:
        return [part(layer, self.group.rank, self.group.size) for layer in self.parameters]

    def write(self, new: Array) -> None:
        super().write(new)
        for rank, theirs in enumerate(self.group.all_gather(self.own())):
            for layer, values in zip(self.parameters, theirs, strict=True):
                part(layer, rank, self.group.size)[:] = values

    def _reduced(self) -> list[Array]:
        return self.group.reduce_scatter(self.gradients, op="mean")


class Stage2(Stage1):
    """Each layer's gradient is reduced as soon as backward has made it, and a rank keeps only its part."""

    def give(self, i: int, gradient: Array) -> None:
        padded_gradient = padded(self.unscattered.watch(gradient), self.group.size)
        (self.gradients[i],) = self.group.reduce_scatter([padded_gradient], op="mean")

    def _reduced(self) -> list[Array]:
        return self.gradients


class Stage3(Stage2):
    """Each rank has its part of the parameters only. It gathers a layer to use it, and drops it then."""

    own = Stage0.own
    write = Stage0.write  # other ranks have no copies that would need the new values

    def layer(self, i: int) -> Array:
        parts = [of_rank[0] for of_rank in self.group.all_gather([self.parameters[i]])]
        return self.gathered.watch(np.concatenate(parts))[: self.sizes[i]]

    def _kept(self, layer: Array) -> Array:
        return part(layer, self.group.rank, self.group.size).copy()


STAGES = Stage0, Stage1, Stage2, Stage3
