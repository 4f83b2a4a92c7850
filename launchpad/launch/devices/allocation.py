"""Allocation of devices to workers. Pure: the same requests always get the same answer.

    whole GPUs     belong to one worker
    shares         below 1; those on one device add up to at most 1
    accelerator    only devices with this text in their name
    parts (MIG)    count as devices; no worker is given two of them

The search backtracks when it is stuck. So it finds an assignment if there is one, unless that takes too many
steps. It serves requests for whole GPUs first, in plan order, and then shares, the largest first. Each
request takes the devices that are of least use to the other requests: those that few requests may have, those
of which others have shares already, those with the lowest numbers. So the first way tried is nearly always
right. The search does not repeat a state that has failed before, nor one that differs from it only in names.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.devices.device import Device

UNIT = 10_000
"""The number of units of a device. Shares are whole numbers of units."""

_MAX_STEPS = 20_000
"""The number of steps, which take some seconds, after which the search gives up. Only requests that were made
to be hard take that long."""


@dataclass(frozen=True)
class GpuRequest:
    """A worker's request for GPUs."""

    worker: str
    group: str
    gpus: float
    accelerator: str | None = None

    @property
    def units(self) -> int:
        """The units that it takes of each device that it gets."""
        return int(self.gpus * UNIT + 1e-6) if self.gpus < 1 else UNIT

    @property
    def count(self) -> int:
        """The number of devices that it gets."""
        return 1 if self.gpus < 1 else int(self.gpus)

    def matches(self, device: Device) -> bool:
        """Return True if the device is of the kind that was asked for."""
        is_right = (self.accelerator or "").lower() in device.name.lower()
        return is_right and not (device.whole and self.count > 1)


def allocate(
    devices: Sequence[Device],
    requests: Sequence[GpuRequest],
    units_taken: Mapping[str, int] | None = None,
) -> dict[str, tuple[Device, ...]] | None:
    """Return worker → its devices; None if there is no assignment.

    Example:
        allocate(installed(), [GpuRequest("learner-0", "learner", 2), GpuRequest("actor-0", "actor", 0.5)])

    Args:
        devices: The devices, in the order in which they are preferred.
        requests: The requests, in the order in which they may choose.
        units_taken: Uuid → the units of that device that others have.
    """
    in_order = sorted((r for r in requests if r.gpus > 0), key=lambda r: -r.units)
    free = [max(0, UNIT - (units_taken or {}).get(device.uuid, 0)) for device in devices]
    assignment = _Search(devices, in_order, free).run()
    if assignment is None:
        return None
    by_worker = {r.worker: tuple(devices[i] for i in sorted(t)) for r, t in assignment}
    return {request.worker: by_worker.get(request.worker, ()) for request in requests}


_Taken = tuple[int, ...]
"""The indices of the devices that one request takes."""


class _Search:
    """A depth-first search, without recursion, since there may be thousands of requests."""

    def __init__(
        self, devices: Sequence[Device], requests: Sequence[GpuRequest], free: list[int]
    ) -> None:
        self._requests = requests
        self._free = free
        kinds = list(dict.fromkeys(_kind(r) for r in requests))
        matches = {_kind(r): [r.matches(device) for device in devices] for r in requests}
        self._matching = {kind: [i for i, s in enumerate(matches[kind]) if s] for kind in kinds}
        self._class = [tuple(matches[kind][i] for kind in kinds) for i in range(len(devices))]
        counts: Counter[object] = Counter()
        alike = []
        for request in reversed(requests):
            key = _kind(request), request.units, request.count
            counts[key] += 1
            alike.append(counts[key])
        self._alike = alike[::-1]
        """For each place, the number of requests from there on that equal the request at this place."""
        self._left = list(
            itertools.accumulate((r.units * r.count for r in reversed(requests)), initial=0)
        )
        self._dead_ends: set[object] = set()

    def run(self) -> list[tuple[GpuRequest, _Taken]] | None:
        """Return each request with its devices; None if there is no way, or the search gives up."""
        chosen: list[_Taken] = []
        ways = [self._ways(0)]
        for _ in range(len(self._requests) + _MAX_STEPS):
            if len(chosen) == len(self._requests):
                return list(zip(self._requests, chosen, strict=True))
            way = next(ways[-1], None)
            if way is not None:
                for i in way:
                    self._free[i] -= self._requests[len(chosen)].units
                chosen.append(way)
                ways.append(self._ways(len(chosen)))
                continue
            self._dead_ends.add(self._state(len(chosen)))
            ways.pop()
            if not ways:
                return None
            for i in chosen.pop():  # give back what was taken last
                self._free[i] += self._requests[len(chosen)].units
        return None

    def _state(self, place: int) -> object:
        """Return all that the rest of the search depends on."""
        return place, tuple(sorted(zip(self._class, self._free, strict=True)))

    def _ways(self, place: int) -> Iterator[_Taken]:
        """Yield the ways to serve the request at this place.

        There is no way if too little is free for this request and the requests after it.
        """
        request = self._requests[place]
        free = self._free
        matching = self._matching[_kind(request)]
        capacity = sum(free[i] // request.units for i in matching)
        if (
            capacity < self._alike[place] * request.count
            or sum(free) < self._left[len(self._requests) - place]
            or self._state(place) in self._dead_ends
        ):
            return
        fits = [i for i in matching if free[i] >= request.units]
        if request.gpus < 1:
            tried = set()
            for i in sorted(fits, key=lambda i: (free[i] == UNIT, sum(self._class[i]), i)):
                if (self._class[i], free[i]) not in tried:
                    tried.add((self._class[i], free[i]))
                    yield (i,)
            return
        by_class: dict[tuple[bool, ...], list[int]] = {}
        for i in sorted(fits, key=lambda i: (sum(self._class[i]), i)):
            by_class.setdefault(self._class[i], []).append(i)
        pools = list(by_class.values())
        numbers = _divisions(request.count, [len(pool) for pool in pools])
        for division in sorted(numbers, key=lambda numbers: sum(n > 0 for n in numbers)):
            yield tuple(i for n, pool in zip(division, pools, strict=True) for i in pool[:n])


def _kind(request: GpuRequest) -> tuple[str, bool]:
    """Return the kind of a request. Requests of one kind suit the same devices."""
    return (request.accelerator or "").lower(), request.count > 1


def _divisions(count: int, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the ways to divide a number into parts within limits; those with large first parts come first."""
    if not most:
        yield from [()] if count == 0 else []
        return
    for first in range(min(count, most[0]), -1, -1):
        for later_parts in _divisions(count - first, most[1:]):
            yield (first, *later_parts)
