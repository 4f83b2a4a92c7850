"""Stats as text for Prometheus: its exposition format, version 0.0.4.

    courier_server_calls_total{server="learner-0",peer="actor-0",method="step"} 1000

A name below stands behind `courier_server_`, with a label for each of server, peer and method; or
behind `courier_client_`, with client, server and method.

    calls_total               counter    in_flight         gauge
    errors_total              counter    duration_seconds  histogram
    received_bytes_total      counter    sent_bytes_total  counter
    items_total               counter
    connections               gauge      uptime_seconds    gauge      (without peer and method)
    info                      gauge      always 1; its labels are address and incarnation
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

_FIRST, _LAST = 3, 27  # the limits that are given, 2**i µs: 8 µs to 134 s

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


class Calls(Protocol):
    """The calls of one method: `MethodStats`, whose fields `_SINGLE` names."""

    @property
    def buckets(self) -> Sequence[int]: ...
    @property
    def ended(self) -> int: ...
    @property
    def total_s(self) -> float: ...


class CountedAt(Protocol):
    """The stats of one client or server: `ClientStats` or `ServerStats`."""

    @property
    def address(self) -> str: ...
    @property
    def incarnation(self) -> str: ...
    @property
    def uptime_s(self) -> float: ...
    @property
    def connections(self) -> int: ...


Series = Sequence[tuple[Labels, Calls]]

_SINGLE = (
    ("calls_total", "counter", "Calls begun.", "calls"),
    ("errors_total", "counter", "Calls that ended with an exception.", "errors"),
    ("in_flight", "gauge", "Calls begun and not ended.", "in_flight"),
    ("received_bytes_total", "counter", "Payload received.", "bytes_in"),
    ("sent_bytes_total", "counter", "Payload sent.", "bytes_out"),
    ("items_total", "counter", "Items of streams, either way.", "items"),
)


def text(prefix: str, owner: Labels, stats: CountedAt, series: Series) -> str:
    """Return what `to_prometheus()` of these stats is.

    Names begin with `prefix`; `owner` are the labels of all.
    """
    about = {**owner, "address": stats.address, "incarnation": stats.incarnation}
    lines = [
        *family(f"{prefix}_info", "gauge", "Who this is.", [(about, 1)]),
        *family(f"{prefix}_uptime_seconds", "gauge", "Since it began.", [(owner, stats.uptime_s)]),
        *family(f"{prefix}_connections", "gauge", "Open now.", [(owner, stats.connections)]),
        *of_calls(prefix, series),
    ]
    return "\n".join(lines) + "\n"


def of_calls(prefix: str, series: Series) -> list[str]:
    """The lines about calls: each of the names in the table above, with all its samples."""
    lines = []
    for name, kind, help_text, field in _SINGLE:
        samples = [(labels, getattr(each, field)) for labels, each in series]
        lines += family(f"{prefix}_{name}", kind, help_text, samples)
    took = f"{prefix}_duration_seconds"
    lines += _head(took, "histogram", "What the ended calls took.")
    for labels, each in series:
        counts = list(accumulate(each.buckets))
        for i in range(_FIRST, _LAST + 1):
            within = {**labels, "le": repr((1 << i) / 1e6)}
            lines.append(_sample(f"{took}_bucket", within, counts[i]))
        lines.append(_sample(f"{took}_bucket", {**labels, "le": "+Inf"}, each.ended))
        lines.append(_sample(f"{took}_sum", labels, each.total_s))
        lines.append(_sample(f"{took}_count", labels, each.ended))
    return lines


def family(name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> list[str]:
    """The lines of one name: what it is, and its samples."""
    return [*_head(name, kind, help_text), *(_sample(name, *sample) for sample in samples)]


def _head(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _sample(name: str, labels: Labels, value: float) -> str:
    inside = []
    for label, text in labels.items():
        escaped = text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        inside.append(f'{label}="{escaped}"')
    return f"{name}{{{','.join(inside)}}} {value!r}"
