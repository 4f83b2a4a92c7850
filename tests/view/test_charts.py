"""What a chart of the last hour is drawn with."""

from __future__ import annotations

import pytest

from launchpad.view.watched_run import Sample

pytest.importorskip("nicegui")
from launchpad.view.pages import charts


def test_an_hour_is_a_mean_for_each_half_minute_which_does_not_change_when_others_come() -> None:
    samples = [Sample(1000.5 + n, n, 0.0, None, None) for n in range(3600)]

    points = charts.points(samples[:-30], lambda sample: sample.calls_per_s)
    later = charts.points(samples, lambda sample: sample.calls_per_s)

    assert len(later) == 121
    assert points[1:-1] == later[1 : len(points) - 1]
    assert later[1] == (1020.0, sum(range(20, 50)) / 30)
    assert charts.points(samples, lambda sample: sample.cpu_percent) == []
