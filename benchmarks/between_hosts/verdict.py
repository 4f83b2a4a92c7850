"""The verdict on calls between hosts: their records beside the times of the faults.

When a call counts as in flight:

- A call that had begun when a fault began, and had not ended, was in flight. If the fault is silent, the call
  has to end within `END_S` of the fault's beginning. A call that takes longer than the fault may also go on:
  its connection survives a silence that is shorter than the time after which courier gives a host up.
- A call that began during a silent fault waits for a connection, and isn't in flight. But its client may not
  have noticed the fault, and may have written the call to a connection that was as good as lost. Such a call
  raises an error, and has to do so within `END_S` of its own beginning.

The first success is the first answer after the end of a fault. A power loss ends when the server serves
again. Calls of every lane have an answer a little later: if a host's own cable was out, its kernel asks for
the other host's hardware address once a second, and may drop requests to connect that wait for it. A client
that connects just then tries again after 0.9 s.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.between_hosts.caller import LANES, Lane, lane_of
from benchmarks.between_hosts.faults import FREEZE, Fault
from benchmarks.between_hosts.pair import PairHistory
from benchmarks.harness import bars
from launchpad.testing.call_history import OK, CallId, RecordedCall, compare

END_S = 4.0
"""The promised time from a silent fault to the end of each call in flight."""

SUCCESS_S = 2.0
"""The promised time from the end of a fault to the first success."""

ALL_SUCCEED_S = 3.0
"""The promised time from the end of a fault until each lane has had a success."""

Report = dict[str, dict[str, Any]]

_IN_DOUBT = ("OutcomeUnknown", "StreamBroken")

BARS = bars.parse(f"""
acknowledged calls lost                                | hosts/lost              | = 0
calls run twice                                        | hosts/twice             | = 0
calls that were NotSent, and run all the same          | hosts/run_all_the_same  | = 0
calls never answered                                   | hosts/unanswered        | = 0
errors that no fault explains                          | hosts/unexplained       | = 0
calls in flight that a frozen host lost                | hosts/lost_by_freeze    | = 0
end of a call in flight after a silent fault, longest  | hosts/longest_end_s     | ≤ {END_S} s
first success after the end of a fault, longest        | hosts/first_success_s   | ≤ {SUCCESS_S} s
success of every lane after the end of a fault, longest | hosts/all_succeed_s    | ≤ {ALL_SUCCEED_S} s
calls in flight when a fault began, fewest             | hosts/fewest_in_flight  | ≥ 1
""")


@dataclass
class KindFigures:
    """The figures of all faults of one kind.

    Attributes:
        in_flight: The calls that were in flight when one of these faults began.
        longest_end_s: The longest time until a call in flight ended; see above.
        first_success_s: The longest time from the end of a fault until a lane had an answer.
        all_succeed_s: The longest time from the end of a fault until every lane had one.
        lost: Acknowledged calls that never ran, of those that a fault may have hit.
        twice: The calls that ran twice, of these.
        in_doubt: The calls that ended with OutcomeUnknown or StreamBroken, of these.
    """

    faults: int = 0
    in_flight: int = 0
    longest_end_s: float = 0.0
    first_success_s: float = 0.0
    all_succeed_s: float = 0.0
    lost: int = 0
    twice: int = 0
    in_doubt: int = 0


def judge(histories: Sequence[PairHistory], kinds: Iterable[str]) -> Report:
    """Return the figures of all faults together, as "hosts", and those of each kind, as "kinds"."""
    figures = {kind: KindFigures() for kind in kinds}
    fewest_in_flight = math.inf
    for history in histories:
        for fault in history.faults:
            n_in_flight = _add(figures[fault.kind], fault, history.calls)
            fewest_in_flight = min(fewest_in_flight, n_in_flight)
    silent = [figure for kind, figure in figures.items() if kind != FREEZE]
    findings = [compare(history.calls) for history in histories]
    outcomes: Counter[str] = Counter()
    for found in findings:
        outcomes += found.acknowledged
    hosts = {
        "calls": outcomes.total(),
        "faults": sum(figure.faults for figure in figures.values()),
        "outcomes": dict(outcomes),
        "lost": sum(len(found.lost) for found in findings),
        "twice": sum(len(found.repeated) for found in findings),
        "run_all_the_same": sum(len(found.run_all_the_same) for found in findings),
        "unanswered": sum(len(found.unanswered) for found in findings),
        "unexplained": sum(len(unexplained(history)) for history in histories),
        "lost_by_freeze": figures[FREEZE].in_doubt if FREEZE in figures else 0,
        "longest_end_s": max((figure.longest_end_s for figure in silent), default=0.0),
        "first_success_s": max(figure.first_success_s for figure in figures.values()),
        "all_succeed_s": max(figure.all_succeed_s for figure in figures.values()),
        "fewest_in_flight": fewest_in_flight,
    }
    return {"hosts": hosts, "kinds": {kind: asdict(figure) for kind, figure in figures.items()}}


def complaints(histories: Sequence[PairHistory]) -> Iterator[str]:
    """Say which calls broke a promise, a line each."""
    for number, history in enumerate(histories, start=1):
        for fault in history.faults:
            for complaint in _complaints_about(fault, history.calls):
                yield f"pair {number}, {fault.kind} for {fault.mended - fault.began:.1f} s: {complaint}"
        findings = compare(history.calls)
        wrong: dict[str, Sequence[CallId]] = {
            "acknowledged, and never run": findings.lost,
            "run twice": findings.repeated,
            "NotSent, and run all the same": findings.run_all_the_same,
            "never answered": findings.unanswered,
            "an error that no fault explains": unexplained(history),
        }
        for problem, call_ids in wrong.items():
            for call_id in call_ids:
                yield f"pair {number}: {problem}: {call_id}, {history.calls[str(call_id)]}"


def _complaints_about(fault: Fault, calls: Mapping[str, RecordedCall]) -> Iterator[str]:
    for call_id, call in calls.items():
        if not may_have_hit(fault, call):
            continue
        took_s = end_s(fault, call, lane_of(call_id))
        if fault.is_silent and took_s > END_S:
            yield f"{call_id} ended after {took_s:.1f} s: {call.outcome}"
        if not fault.is_silent and failed_by(fault, call) and call.outcome in _IN_DOUBT:
            yield f"{call_id} raised {call.outcome}"
    successes_s = first_successes_s(fault, calls)
    if min(successes_s.values()) > SUCCESS_S:
        yield f"the first success was {min(successes_s.values()):.1f} s after the end"
    for name, success_s in successes_s.items():
        if success_s > ALL_SUCCEED_S:
            yield f"{name} had its first success {success_s:.1f} s after the end"


def _add(figures: KindFigures, fault: Fault, calls: Mapping[str, RecordedCall]) -> int:
    """Add one fault to the figures of its kind. Return the number of calls in flight when it began."""
    hit = {call_id: call for call_id, call in calls.items() if may_have_hit(fault, call)}
    in_flight = [call for call in hit.values() if was_in_flight(fault, call)]
    ends_s = [end_s(fault, call, lane_of(call_id)) for call_id, call in hit.items()]
    successes_s = first_successes_s(fault, calls)
    findings = compare(hit)
    figures.faults += 1
    figures.in_flight += len(in_flight)
    figures.longest_end_s = max(figures.longest_end_s, *ends_s, 0.0)
    figures.first_success_s = max(figures.first_success_s, min(successes_s.values()))
    figures.all_succeed_s = max(figures.all_succeed_s, *successes_s.values())
    figures.lost += len(findings.lost)
    figures.twice += len(findings.repeated)
    figures.in_doubt += sum(
        failed_by(fault, call) and call.outcome in _IN_DOUBT for call in hit.values()
    )
    return len(in_flight)


def may_have_hit(fault: Fault, call: RecordedCall) -> bool:
    """Return True if the call was made, or still went on, between the fault's beginning and its aftermath."""
    return (
        call.begun is not None
        and call.begun <= fault.mended + END_S
        and ended_at(call) >= fault.began
    )


def failed_by(fault: Fault, call: RecordedCall) -> bool:
    """Return True if the call ended with an error between the fault's beginning and its aftermath."""
    has_failed = call.outcome not in ("", OK)
    return has_failed and fault.began <= ended_at(call) <= fault.mended + END_S


def was_in_flight(fault: Fault, call: RecordedCall) -> bool:
    """Return True if the call had begun and not ended when the fault began."""
    return call.begun is not None and call.begun <= fault.began < ended_at(call)


def end_s(fault: Fault, call: RecordedCall, lane: Lane) -> float:
    """Return how long a call of a fault was in flight, and 0 if it wasn't, or if its connection survived."""
    assert call.begun is not None
    has_failed = failed_by(fault, call)
    if was_in_flight(fault, call):
        lasted_s = fault.mended - fault.began
        may_survive = not fault.ends_connections and (lasted_s < END_S or not fault.is_silent)
        has_survived = lane.is_long and may_survive and not has_failed
        return 0.0 if has_survived else ended_at(call) - fault.began
    if call.begun <= fault.mending and has_failed and call.outcome in _IN_DOUBT:
        return ended_at(call) - call.begun
    return 0.0


def ended_at(call: RecordedCall) -> float:
    """Return the time of a call's end, which is infinite if it has none."""
    return math.inf if call.ended is None else call.ended


def first_successes_s(fault: Fault, calls: Mapping[str, RecordedCall]) -> dict[str, float]:
    """Return lane → the seconds from the fault's end until a call was answered, for lanes of short calls."""
    first = {name: math.inf for name, lane in LANES.items() if not lane.is_long}
    for call_id, call in calls.items():
        name = call_id.partition("/")[0]
        if name in first and call.outcome == OK:
            ended = ended_at(call)
            if ended >= fault.mending:
                first[name] = min(first[name], max(0.0, ended - fault.mended))
    return first


def unexplained(history: PairHistory) -> list[str]:
    """Return the calls with errors that they can't have by a fault, or that they had without one."""
    failed = {
        call_id: call
        for call_id, call in history.calls.items()
        if call.outcome and call.outcome != OK
    }
    return [
        call_id
        for call_id, call in failed.items()
        if call.outcome not in lane_of(call_id).errors
        or not any(failed_by(fault, call) for fault in history.faults)
    ]
