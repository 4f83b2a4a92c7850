"""Checks of Determined's promises, on the events of a search, and the losses of undisturbed trials."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from examples._shared.checks import check
from examples.systems.determined.master import Event


def check_asha(name: str, events: Sequence[Event], rungs: Sequence[Sequence[int]]) -> None:
    """Check decisions against the rule of ASHA with eta 3; `rungs` has those of each trial."""
    losses = defaultdict[tuple[Sequence[int], int], list[float]](list)
    verdicts = []
    for kind, trial, step, _ in events:
        if trial.experiment.name == name and kind not in ("begins", "lost"):
            own = rungs[trial.number]
            rivals = losses[own, step]
            rivals.append(trial.metrics[step - 1])
            n_better = sum(loss < rivals[-1] for loss in rivals)
            is_good = step < own[-1] and n_better < max(len(rivals) // 3, 1)
            verdicts.append((kind == "closed") == (step in own and not is_good))
    claim = f"{name} stops those trials that the rule of ASHA stops, in the recorded order"
    check(all(verdicts), claim, f"{sum(verdicts)} of {len(verdicts)} decisions")


def check_runs(events: Sequence[Event]) -> None:
    """Check that trials had their slots for themselves, made room, and had all again after a death."""
    held: dict[str, Mapping[str, int]] = {}
    right = 0
    for kind, trial, _, slots in events:
        taken = {slot for others in held.values() for slot in others}
        if kind == "begins":
            is_whole = len(slots) == trial.experiment.slots
            right += is_whole and trial.name not in held and not taken & set(slots)
            held[trial.name] = slots
        elif kind != "goes on":
            del held[trial.name]
    n = Counter(each.kind for each in events)
    gangs = sum(each.kind == "lost" and len(each.slots) > 1 for each in events)
    claim = "a trial gets all its slots at once and for itself, also when one of them has died"
    measured = f"{right} of {n['begins']} runs; {n['lost']} were lost, {gangs} with several slots"
    check(right == n["begins"] and gangs > 0, claim, measured)
    claim = "trials leave their slots to a more urgent one, and go on later"
    check(n["preempted"] > 0 and not held, claim, f"{n['preempted']} were preempted")


def check_curves(curves: Mapping[str, list[float]], alone: Mapping[str, list[float]]) -> None:
    """Check that deaths have changed no loss, and that ASHA finds one of the best trials."""
    equal = sum(curve == alone[name][: len(curve)] for name, curve in curves.items())
    claim = "trials have the losses of undisturbed ones, bit for bit, although slots die"
    check(equal == len(curves), claim, f"{equal} of {len(curves)} trials")
    own = [name for name in curves if name.startswith("asha/")]
    best = min(own, key=lambda name: (-len(curves[name]), curves[name][-1]))
    rank = sum(alone[name][-1] < alone[best][-1] for name in own)
    used = sum(len(curves[name]) for name in own) / sum(len(alone[name]) for name in own)
    claim = "ASHA finds one of the three best trials with 35% of all steps at most"
    check(rank < 3 and used <= 0.35, claim, f"{best}, number {rank + 1} of {len(own)}; {used:.0%}")
