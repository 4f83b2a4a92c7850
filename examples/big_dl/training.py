"""What is trained: a network large enough that a message is nearly all gradient."""

from dataclasses import dataclass

from examples._shared import networks
from examples._shared.digits import Array
from examples._shared.problem import Problem


@dataclass(frozen=True)
class Deep(Problem):
    """The common problem, for more layers, whose parameters cannot begin with zeros."""

    widths: tuple[int, ...] = (64, 512, 64, 10)

    @property
    def first_parameters(self) -> Array:
        return networks.first_parameters(self.widths)
