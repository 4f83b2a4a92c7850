"""ZeRO's stages: each changes a little of the one before.

each of N ranks keeps   parameters   gradients   Adam's state   and sends in a step
stage 0                 Ψ            Ψ           2Ψ             2Ψ (N-1)/N
stage 1                 Ψ            Ψ           2Ψ/N           2Ψ (N-1)/N
stage 2                 Ψ            Ψ/N         2Ψ/N           2Ψ (N-1)/N
stage 3                 Ψ/N          Ψ/N         2Ψ/N           3Ψ (N-1)/N
"""

import numpy as np

from examples._shared.digits import Array
from examples.systems.zero.adam import Adam
from examples.systems.zero.group import Group
from examples.systems.zero.parts import fill, padded, part
from examples.systems.zero.transient import Transient


class Stage0:
    """Data parallelism: each rank keeps everything, and gradients are averaged by all-reduce."""

    def __init__(self, group: Group, layers: list[Array]) -> None:
        self.group, self.sizes, self.steps = group, [len(layer) for layer in layers], 0
        self.parameters = [self._kept(padded(layer, group.size)) for layer in layers]
        self.gradients = [np.empty(0)] * len(layers)
        self.adam = Adam(sum(map(len, self.own())))
        self.gathered, self.unscattered = Transient(), Transient()

    def layer(self, i: int) -> Array:
        """Return a layer's parameters, to be used at once."""
        return self.parameters[i][: self.sizes[i]]

    def give(self, i: int, gradient: Array) -> None:
        """Take a layer's gradient, of this rank's examples."""
        self.gradients[i] = padded(gradient, self.group.size)

    def update(self) -> None:
        """Do a step of Adam, once all layers have their gradients."""
        self.steps += 1
        change = self.adam.change(np.concatenate(self._reduced()), self.steps)
        self.write(np.concatenate(self.own()) + change)

    def own(self) -> list[Array]:
        """Return what this rank updates of each layer; writing to it changes the parameters."""
        return self.parameters

    def write(self, new: Array) -> None:
        """Set what this rank updates; the others do so, too."""
        fill(self.own(), new)

    def _kept(self, layer: Array) -> Array:
        return layer

    def _reduced(self) -> list[Array]:
        self.gradients = self.group.all_reduce(self.gradients, op="mean")
        return self.gradients


class Stage1(Stage0):
    """Each rank has Adam's state of its part only: it updates that, and all gather the parts."""

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
    """A layer's gradient is reduced as soon as it is there, and of that only a part is kept."""

    def give(self, i: int, gradient: Array) -> None:
        whole = padded(self.unscattered.watch(gradient), self.group.size)
        (self.gradients[i],) = self.group.reduce_scatter([whole], op="mean")

    def _reduced(self) -> list[Array]:
        return self.gradients


class Stage3(Stage2):
    """Each rank has its part of the parameters only: a layer is gathered to be used, and dropped."""

    own, write = Stage0.own, Stage0.write  # there are no copies that others have to know of

    def layer(self, i: int) -> Array:
        parts = [of_rank[0] for of_rank in self.group.all_gather([self.parameters[i]])]
        return self.gathered.watch(np.concatenate(parts))[: self.sizes[i]]

    def _kept(self, layer: Array) -> Array:
        return part(layer, self.group.rank, self.group.size).copy()


STAGES = Stage0, Stage1, Stage2, Stage3
