"""Node: a service described in a program."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, TypeVar

from launchpad.address import Address
from launchpad.errors import DefinitionError
from launchpad.handle import Handle
from launchpad.runtime.executable import Executable

HandleT = TypeVar("HandleT", bound=Handle[Any], covariant=True)


class Node(abc.ABC, Generic[HandleT]):
    """A service described in a program; nothing is built until the program runs.

    To write a kind of node of your own, derive from this class. Allocate the addresses at which the node
    serves, create its handle, and return what its worker runs:

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
    """True if the node stops last.

    The supervisor asks it to stop when all other workers have ended, or half of their time to stop is over.
    """

    _made_with: tuple[tuple[Any, ...], dict[str, Any]]
    """The arguments of the constructor, for `replica`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        node = super().__new__(cls)
        node._made_with = args, kwargs
        return node

    def __init__(self) -> None:
        self.addresses: list[Address] = []
        self.added_at = ""
        self.added_to = ""

    def __getstate__(self) -> dict[str, Any]:
        # A node that is pickled has been added, and gets no more replicas.
        return {name: value for name, value in vars(self).items() if name != "_made_with"}

    @abc.abstractmethod
    def create_handle(self) -> HandleT:
        """Return a handle of this node.

        launchpad may call this more than once, and before the node is in a program.
        """

    @abc.abstractmethod
    def to_executable(self) -> Executable:
        """Return what a worker runs, as data. This is called at each setup, and must not change the node."""

    def check_definition(self, *, is_final: bool = True) -> None:
        """Raise DefinitionError if the node has a mistake that can be found before it runs.

        This is called when the node is added, with `is_final=False`, and again when its program is planned.
        """
        return

    def allocate_address(self, address: Address) -> Address:
        """Make `address` this node's own: the backend gives it an endpoint when the program runs.

        Raises:
            DefinitionError: the node has another address with the same role.
            TypeError: `address` is not an Address.
        """
        if not isinstance(address, Address):
            raise TypeError(f"expected an lp.Address, got {address!r}")
        if address in self.addresses:
            return address
        if any(address.role == own.role for own in self.addresses):
            raise DefinitionError(
                f"{self!r} has an address {address.role!r} already; give this one another role:"
                " lp.Address('…')"
            )
        self.addresses.append(address)
        return address

    def replica(self) -> Self:
        """Return another node of this kind, constructed with the same arguments.

        Raises:
            DefinitionError: the node is a colocation, or has an address that it didn't make itself.
        """
        if self.members():
            raise DefinitionError(
                f"{self!r}: a colocation has no replicas, since its nodes' handles belong to one of them."
                " Add several in a loop"
            )
        args, kwargs = self._made_with
        replica = type(self)(*args, **kwargs)
        is_like_this = len(replica.addresses) == len(self.addresses)
        if not is_like_this or any(address in self.addresses for address in replica.addresses):
            raise DefinitionError(
                f"{self!r} has an address that was given to it, so it has no replicas. Add several in a"
                " loop, each with an address"
            )
        return replica

    def joined(
        self,
        label: str,
        siblings: Sequence[Node[Any]],
        add_worker: Callable[[Node[Any], str], Handle[Any]],
    ) -> None:
        """React to being added to a group, alone or in a colocation. This is called once.

        Override it if the replicas of your kind of node know each other, or share a worker that serves them.

        Args:
            label: The label of the group.
            siblings: The nodes that the group already had, including those in colocations.
            add_worker: A function that adds a node to the program, in a group of its own, and returns its
                handle.
        """
        return

    def members(self) -> tuple[Node[Any], ...]:
        """Return the nodes inside this one; empty unless it is a colocation."""
        return ()

    def arguments(self) -> dict[str, Any]:
        """Return the user's arguments by name; launchpad searches them for handles.

        In messages, the path to a handle begins with the name.
        """
        return {}
