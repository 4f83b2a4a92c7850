"""RestartPolicy: what happens when a worker of a group ends, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass

from launchpad.courier.checks import is_number, is_whole
from launchpad.courier.explained import explains_arguments
from launchpad.errors import DefinitionError, refuse_unless

NEVER = "never"
ON_FAILURE = "on_failure"
ALWAYS = "always"
MODES = (NEVER, ON_FAILURE, ALWAYS)

WORKER = "worker"
GROUP = "group"
PROGRAM = "program"
SCOPES = (WORKER, GROUP, PROGRAM)

_LONGEST_DELAY_S = 30.0


@explains_arguments("launchpad.other_names:RESTART_POLICY")
@dataclass(frozen=True)
class RestartPolicy:
    """The rules by which workers of a group are started again.

    Without a policy, a failure ends the program. With `lp.RestartPolicy()`, a worker that fails is started
    again, at most three times a minute. One more failure ends the program, and the report lists all failures.

    Example:
        with program.group("actor", restart=lp.RestartPolicy(max_restarts=10, within_s=60)):
          for seed in range(8):
            program.add_node(lp.PyClassNode(Actor, learner, seed))

    A call to a worker that is being restarted waits. A call that was in flight when the worker ended raises
    OutcomeUnknown. Clients reconnect by themselves. A worker is not started again if it raised
    `lp.DoNotRestart`, exited with a code from 42 to 49, or could not import its code.

    The policy follows Erlang/OTP's supervisors: `mode` is the child's restart type (temporary, transient,
    permanent), `max_restarts` and `within_s` are the restart intensity, and `scope` is the strategy
    (one_for_one, one_for_all).

    Attributes:
        mode: `never`, `on_failure`, or `always`, which also restarts a worker that succeeded.
        max_restarts: The number of restarts allowed within `within_s` seconds; one more ends the program.
        within_s: The length of that window, in seconds.
        backoff: Seconds. The first restart within the window is immediate, the second waits this long, and
            each further restart waits twice as long as the one before, 30 s at most.
        scope: What is started again: the `worker`, its whole `group`, or the whole `program`. Workers in
            that scope that still run are stopped first, as at the end of a program.
        start_timeout_s: Seconds a worker may take to become ready. After that, its stacks are written to its
            log and it is killed, which counts as a failure. None means no limit.
        stop_grace_s: Seconds a worker of this group may take to stop; overrides
            --lp_termination_notice_secs. Negative means no limit.
        save_every_s: Seconds between calls of the object's `save()`, which another thread makes while other
            methods run. If it is None, `save()` is called when a worker is stopped to be started again, and
            with `launch(state=…)` whenever a worker ends without a failure.
        heartbeat_s: Seconds that a `run()` may go without calling `lp.heartbeat()`. After that, the worker's
            stacks are written to its log and it is killed, which counts as a failure. A worker that only
            serves is not watched.
        min_replicas: The fewest replicas with which a group of `lp.CollectiveNode` goes on; needs scope
            `worker`. When a worker is lost, the others begin the next generation without it; when it is
            back, another generation begins with it.

    Raises:
        DefinitionError: a value is not valid; the text says what is expected.
    """

    mode: str = ON_FAILURE
    max_restarts: int = 3
    within_s: float = 60.0
    backoff: float = 0.1
    scope: str = WORKER
    start_timeout_s: float | None = None
    stop_grace_s: float | None = None
    save_every_s: float | None = None
    heartbeat_s: float | None = None
    min_replicas: int | None = None

    def __post_init__(self) -> None:
        timeout_s = self.start_timeout_s
        grace_s = self.stop_grace_s
        rules = (
            ("mode", self.mode in MODES, f"one of {', '.join(MODES)}"),
            ("scope", self.scope in SCOPES, f"one of {', '.join(SCOPES)}"),
            ("max_restarts", _is_at_least_0(self.max_restarts), "0 or more"),
            ("within_s", _is_more_than_0(self.within_s), "seconds, more than 0"),
            ("backoff", _is_at_least_0(self.backoff), "seconds, 0 or more"),
            ("start_timeout_s", timeout_s is None or is_number(timeout_s), "seconds or None"),
            ("stop_grace_s", grace_s is None or is_number(grace_s), "seconds or None"),
            (
                "start_timeout_s",
                timeout_s is None or _is_more_than_0(timeout_s),
                "seconds, more than 0, or None",
            ),
            *(
                (name, value is None or _is_more_than_0(value), "seconds, more than 0, or None")
                for name, value in (
                    ("save_every_s", self.save_every_s),
                    ("heartbeat_s", self.heartbeat_s),
                )
            ),
        )
        fewest = self.min_replicas
        is_good = fewest is None or is_whole(fewest, at_least=1)
        refuse_unless(self, (*rules, ("min_replicas", is_good, "1 or more, or None")))
        if fewest is not None and self.scope != WORKER:
            raise DefinitionError(
                f"RestartPolicy(scope={self.scope!r}, min_replicas={fewest}): with min_replicas each worker"
                " is started again by itself, scope='worker'"
            )

    def delay_s(self, n_before: int) -> float:
        """Return the seconds that a restart waits after `n_before` earlier restarts within the window."""
        if not n_before:
            return 0.0
        return min(self.backoff * 2.0 ** min(n_before - 1, 60), max(_LONGEST_DELAY_S, self.backoff))


def refuse_endless_main(label: str, policy: RestartPolicy) -> None:
    """Raise DefinitionError for a policy that would never let a main group end."""
    if policy.mode == ALWAYS:
        raise DefinitionError(
            f"group {label!r} is main=True, so the program ends when it has; with"
            " RestartPolicy(mode='always') it never would. Use mode='on_failure', or leave main out."
        )


def _is_at_least_0(value: object) -> bool:
    return is_number(value) and value >= 0


def _is_more_than_0(value: object) -> bool:
    return _is_at_least_0(value) and value != 0


NO_RESTARTS = RestartPolicy(mode=NEVER)
GROUP_RESTARTS = RestartPolicy(scope=GROUP)
