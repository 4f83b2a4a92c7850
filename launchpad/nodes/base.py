"""Node: a service described in a program."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from launchpad.address import Address
from launchpad.errors import DefinitionError
from launchpad.handle import Handle
from launchpad.runtime.executable import Executable

HandleT = TypeVar("HandleT", bound=Handle[Any], covariant=True)


class Node(abc.ABC, Generic[HandleT]):
    """A service described in a program; nothing of it is built until the program runs.

    A kind of your own makes a handle, gives what a worker runs, and owns the addresses at which it serves:

    Example:
        class BoardNode(lp.Node[BoardHandle]):
          def __init__(self, log_directory):
            super().__init__()
            self._address = self.allocate_address(lp.Address("http"))
            self._log_directory = log_directory

          def create_handle(self):
            return BoardHandle(self, self._address)

          def to_executable(self):
            return BoardExecutable(self._log_directory, self._address)
    """

    stops_last = False
    """Whether it is asked to stop when all others have ended, or half of the time that they have is over."""

    def __init__(self) -> None:
        self.addresses: list[Address] = []
        self.added_at = ""
        self.added_to = ""

    @abc.abstractmethod
    def create_handle(self) -> HandleT:
        """A handle of this node; may be called before the node is in a program, and more than once."""

    @abc.abstractmethod
    def to_executable(self) -> Executable:
        """What a worker runs, as data. Called at each setup; must not change the node."""

    def check_definition(self, *, is_final: bool = True) -> None:
        """Raises DefinitionError for a mistake in it that can be seen before it runs.

        Called when it is added, and once more, `is_final`, when its program is planned.
        """
        return

    def allocate_address(self, address: Address) -> Address:
        """Makes `address` this node's own: the backend gives it an endpoint when the program runs.

        Raises:
            DefinitionError: it has another address of the same role.
            TypeError: it is no Address.
        """
        if not isinstance(address, Address):
            raise TypeError(f"expected an lp.Address, got {address!r}")
        if address in self.addresses:
            return address
        if any(address.role == other.role for other in self.addresses):
            raise DefinitionError(
                f"{self!r} has an address {address.role!r} already; give this one another role:"
                " lp.Address('…')"
            )
        self.addresses.append(address)
        return address

    def joined(
        self,
        label: str,
        siblings: Sequence[Node[Any]],
        add_worker: Callable[[Node[Any], str], Handle[Any]],
    ) -> None:
        """Called once, when it has been added to a group, by itself or in a colocation.

        For kinds whose replicas know each other, or need a worker that serves all of them.

        Args:
            siblings: The nodes that the group had before, those in colocations as well.
            add_worker: Adds a node to the program, in a group of its own, and returns its handle.
        """
        return

    def members(self) -> tuple[Node[Any], ...]:
        """The nodes inside this one; none, unless it is a colocation."""
        return ()

    def arguments(self) -> dict[str, Any]:
        """What the user gave, by the name with which a path to it begins. Handles are looked for here."""
        return {}
