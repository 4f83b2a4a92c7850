"""The cable between a host and the switch, and the names of what it connects."""

from __future__ import annotations

from dataclasses import dataclass

MAX_HOSTS = 250
SUBNET = "10.77.0"


@dataclass(frozen=True)
class Cable:
    """The names that belong to the host with this number; the first host is 1."""

    number: int

    @property
    def host(self) -> str:
        """The host's name."""
        return f"h{self.number}"

    @property
    def address(self) -> str:
        """The address that the host has at first."""
        return f"{SUBNET}.{self.number}"

    @property
    def mac(self) -> str:
        """The address of the host's network card, which is the same after each boot."""
        return f"02:00:00:00:77:{self.number:02x}"

    @property
    def port(self) -> str:
        """The switch's end of the cable. The host's end is called eth0."""
        return f"p{self.number}"

    @property
    def tap(self) -> str:
        """The port of a relay, which is between the cable and the switch while the cable is slow."""
        return f"t{self.number}"
