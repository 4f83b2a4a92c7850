"""Statistics as text for Prometheus, in its exposition format, version 0.0.4.

    courier_server_calls_total{server="learner-0",peer="actor-0",method="step"} 1000

Each name below has the prefix `courier_server_`, with the labels server, peer and method, or the prefix
`courier_client_`, with the labels client, server and method.

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

# The histogram's limits are 2**i µs for these i: 8 µs to 134 s.
_FIRST = 3
_LAST = 27

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


class Calls(Protocol):
    """Statistics of the calls of one method, such as `MethodStats`. `_SINGLE` lists their other fields."""

    @property
    def buckets(self) -> Sequence[int]: ...
    @property
    def ended(self) -> int: ...
    @property
    def total_s(self) -> float: ...


class CountedAt(Protocol):
    """Statistics of one client or server: `ClientStats` or `ServerStats`."""

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
    """Return the text for one client's or server's statistics.

    Args:
        prefix: The beginning of all names.
        owner: Labels that all samples have.
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
    """Return the lines about calls: each name in the table above that counts calls, with all its samples."""
    lines = []
    for name, kind, help_text, field in _SINGLE:
        samples = [(labels, getattr(calls, field)) for labels, calls in series]
        lines += family(f"{prefix}_{name}", kind, help_text, samples)
    metric = f"{prefix}_duration_seconds"
    lines += _head(metric, "histogram", "What the ended calls took.")
    for labels, calls in series:
        counts = list(accumulate(calls.buckets))
        for i in range(_FIRST, _LAST + 1):
            bucket_labels = {**labels, "le": repr((1 << i) / 1e6)}
            lines.append(_sample(f"{metric}_bucket", bucket_labels, counts[i]))
        lines.append(_sample(f"{metric}_bucket", {**labels, "le": "+Inf"}, calls.ended))
        lines.append(_sample(f"{metric}_sum", labels, calls.total_s))
        lines.append(_sample(f"{metric}_count", labels, calls.ended))
    return lines


def family(name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> list[str]:
    """Return the lines of one name: its help and type, and its samples."""
    return [*_head(name, kind, help_text), *(_sample(name, *sample) for sample in samples)]


def _head(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _sample(name: str, labels: Labels, value: float) -> str:
    pairs = []
    for label, text in labels.items():
        escaped = text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        pairs.append(f'{label}="{escaped}"')
    return f"{name}{{{','.join(pairs)}}} {value!r}"
