"""What is said about restarts: that one is made, why none is, and what a worker died of before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from launchpad import outcome
from launchpad.launch.restarts import START_TIMEOUT, Decision, Reason
from launchpad.launch.watched import Watched
from launchpad.outcome import Outcome
from launchpad.restart_policy import GROUP, WORKER


def scope_name(worker: Watched) -> str:
    """Under which its restarts are counted."""
    scope = worker.plan.restart.scope
    return {WORKER: worker.name, GROUP: f"group {worker.plan.group}"}.get(scope, "program")


def too_late(worker: Watched, ended: Outcome) -> Outcome:
    """The end of a worker that was killed because it was not ready in time."""
    limit = worker.plan.restart.start_timeout_s
    return replace(
        ended,
        kind=outcome.FAILED,
        cause=f"was not ready within start_timeout_s={limit:g}, and was killed",
        error_type=START_TIMEOUT,
        hint="its log ends with the stacks of all its threads: see where it was",
    )


def announcement(worker: Watched, ended: Outcome, decision: Decision) -> str:
    """A line for the terminal: it has ended, and is started again."""
    policy = worker.plan.restart
    what = {WORKER: "it", GROUP: f"group {worker.plan.group!r}"}.get(policy.scope, "the program")
    when = f"in {decision.delay_s:g} s" if decision.delay_s else "now"
    count = f"{decision.n_before + 1} of {policy.max_restarts} within {policy.within_s:g} s"
    return f"{ended.headline().rstrip(': ')}; {what} is started again {when} ({count})"


def given_up(
    worker: Watched, ended: Outcome, reason: Reason, earlier: Sequence[Outcome]
) -> Outcome:
    """The outcome of a worker that is not started again, with the reason and its earlier deaths."""
    hint = "" if reason in (Reason.NO_POLICY, Reason.STOPPING) else f"not started again: {reason}"
    if reason is Reason.TOO_OFTEN:
        hint = _too_often(worker, len(earlier))
        cause = ended.cause or "it ended, and its policy says always"
        ended = replace(ended, kind=outcome.FAILED, cause=cause)
    hint = "; ".join(filter(None, (ended.hint, hint)))
    return replace(ended, hint=hint, earlier=tuple(death.headline() for death in earlier))


def _too_often(worker: Watched, n_restarts: int) -> str:
    policy = worker.plan.restart
    return (
        f"not started again: it had {n_restarts} of the restarts that its policy allows"
        f" (max_restarts={policy.max_restarts}, within_s={policy.within_s:g})"
    )
