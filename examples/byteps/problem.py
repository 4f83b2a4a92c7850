"""A network with a layer of 17 MB, which has to travel in many partitions."""

from dataclasses import dataclass

from examples._shared import networks
from examples._shared.digits import Array
from examples._shared.problem import Problem


@dataclass(frozen=True)
class Deep(Problem):
    """The common problem, for more layers, whose parameters cannot begin with zeros."""

    @property
    def first_parameters(self) -> Array:
        return networks.first_parameters(self.widths)
