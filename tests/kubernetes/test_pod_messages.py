"""What a pod and the launcher tell each other, and what is made of what the cluster says of a pod."""

from __future__ import annotations

from typing import Any

import pytest

from launchpad import outcome
from launchpad.launch.backends.kubernetes import pod_messages, pod_status
from launchpad.launch.backends.kubernetes.pod_messages import PodCommands, Stacks
from launchpad.launch.backends.kubernetes.pod_status import AttemptFacts
from launchpad.outcome import Outcome
from launchpad.runtime.events import Ended, Waiting, WorkerNote

FAILED = Outcome("a-0", outcome.FAILED, "run", 2, "ValueError: boom", "ValueError", "Traceback …")


@pytest.mark.parametrize(
    "report",
    [
        Waiting("a-0", "b-0"),
        WorkerNote("a-0", "the disk is full\nreally: ü"),
        Stacks(3, 'File "x.py", line 1\n'),
        Ended(FAILED),
    ],
)
def test_a_report_arrives_as_it_was_sent(report: Any) -> None:
    line = pod_messages.written(report)

    assert line.count(b"\n") == 1
    assert pod_messages.report_in(line.removesuffix(b"\n")) == report


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        pod_messages.MARK,
        pod_messages.MARK + b"{}",
        b"\xff\x00",
        pod_messages.written(Ended(FAILED)).removesuffix(b"\n"),
    ],
)
def test_a_line_of_the_users_is_no_report_and_comes_through_unchanged(line: bytes) -> None:
    sent = pod_messages.escaped(line)

    assert pod_messages.report_in(sent) is None
    assert pod_messages.unescaped(sent) == line


def test_commands_arrive_as_they_were_written_and_those_of_later_versions_are_passed_over() -> None:
    commands = PodCommands(restarts=True, gone={"b-0": "it failed"}, stacks=2)

    assert pod_messages.parse_commands(commands.text()) == commands
    assert pod_messages.parse_commands("") == PodCommands()
    assert pod_messages.parse_commands('{"kill": true, "of_tomorrow": 1}') == PodCommands(kill=True)


@pytest.mark.parametrize("filler", ["x", "ü", "\0"])
def test_last_words_fit_into_a_termination_message_whatever_the_traceback(filler: str) -> None:
    ended = Outcome(
        "a-0", outcome.FAILED, "run", 2, filler * 9000, "E", filler * 99_000, filler * 9000
    )

    words = pod_messages.termination_message(ended)

    assert len(words) <= pod_messages.MOST_BYTES
    said = pod_messages.outcome_in(words.decode())
    assert said is not None
    assert (said.worker, said.kind) == ("a-0", outcome.FAILED)


@pytest.mark.parametrize("message", ["", "Killed", "[]", "{}", '{"worker": 1'])
def test_a_termination_message_that_is_not_ours_says_nothing(message: str) -> None:
    assert pod_messages.outcome_in(message) is None


# --- endings -------------------------------------------------------------------------------------


def pod(state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    container = {"name": "worker", "state": state or {}}
    limits = {"memory": "1000"}
    return {
        "metadata": {"name": "p", "uid": "1", "labels": {}},
        "spec": {"nodeName": "node1", "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": "Running", "containerStatuses": [container], **status},
    }


def terminated(**how: Any) -> dict[str, Any]:
    return pod({"terminated": {"exitCode": 0, "reason": "Error", **how}})


TOLD = AttemptFacts("a-0", 2, is_ready=True)
SAID = AttemptFacts("a-0", 2, reported=Outcome("a-0", outcome.STOPPED, "run", 2))
ASKED = AttemptFacts("a-0", 2, reported=SAID.reported, asked=True)
KILLED = AttemptFacts("a-0", 2, asked=True, killed=True)
EVICTED = pod({}, phase="Failed", reason="Evicted", message="low on memory")
LAST_WORDS = pod_messages.termination_message(FAILED).decode()


@pytest.mark.parametrize(
    ("found", "told", "kind", "cause"),
    [
        (terminated(exitCode=137), TOLD, outcome.FAILED, "killed by SIGKILL"),
        (terminated(exitCode=0, signal=9), TOLD, outcome.FAILED, "killed by SIGKILL"),
        (
            terminated(exitCode=255, reason="Unknown"),
            TOLD,
            outcome.LOST,
            "its node doesn't know how its container has ended",
        ),
        (terminated(exitCode=7), TOLD, outcome.FAILED, "exited with code 7 without a word"),
        (
            terminated(exitCode=137, reason="OOMKilled"),
            TOLD,
            outcome.FAILED,
            "out of memory (OOMKilled); its limit is 1000 bytes",
        ),
        (
            terminated(exitCode=128, reason="StartError", message="no such file"),
            TOLD,
            outcome.FAILED,
            "cannot run: no such file",
        ),
        (EVICTED, TOLD, outcome.LOST, "Evicted: low on memory"),
        (EVICTED, SAID, outcome.LOST, "Evicted: low on memory"),
        (pod({}, phase="Failed", reason="NodeLost"), TOLD, outcome.LOST, "NodeLost"),
        (pod({}), TOLD, outcome.LOST, "it is unknown how"),
        # What the worker has said itself counts most; else its last words, should the log be lost.
        (
            terminated(exitCode=137),
            AttemptFacts("a-0", 2, reported=FAILED),
            outcome.FAILED,
            "ValueError: boom",
        ),
        (terminated(exitCode=1, message=LAST_WORDS), TOLD, outcome.FAILED, "ValueError: boom"),
    ],
)
def test_an_ending_is_named(
    found: dict[str, Any], told: AttemptFacts, kind: str, cause: str
) -> None:
    ended = pod_status.ending(told, found, was_deleted=False)

    assert (ended.worker, ended.attempt, ended.kind) == ("a-0", 2, kind)
    assert cause in ended.cause
    assert ended.host == "node1"
    assert ended.traceback == (FAILED.traceback if cause == FAILED.cause else "")


@pytest.mark.parametrize(
    ("found", "told", "kind", "cause"),
    [
        (terminated(exitCode=137), TOLD, outcome.LOST, "its pod was deleted, and not by us"),
        (terminated(), SAID, outcome.LOST, "its pod was deleted, and not by us"),
        (pod({}), TOLD, outcome.LOST, "deleted"),
        (terminated(), ASKED, outcome.STOPPED, ""),
        (terminated(exitCode=137), KILLED, outcome.STOPPED, "killed when it did not stop"),
    ],
)
def test_the_ending_of_a_pod_that_was_deleted_says_by_whom(
    found: dict[str, Any], told: AttemptFacts, kind: str, cause: str
) -> None:
    ended = pod_status.ending(told, found, was_deleted=True)

    assert ended.kind == kind
    assert cause in ended.cause


@pytest.mark.parametrize(
    ("found", "cause", "hint"),
    [
        (
            pod(
                {},
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
                    }
                ],
            ),
            "pending for 60 s: Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
            " (it asks for 5 GPUs)",
            "ask for less",
        ),
        (
            pod({"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off "x:1"'}}),
            'pending for 60 s: ImagePullBackOff: Back-off "x:1"',
            "see the image's name",
        ),
        (
            pod({"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}}),
            "pending: ErrImageNeverPull: not present",
            "see the image's name",
        ),
        (pod({}), "pending for 60 s: the cluster does not say why", "kubectl describe pod"),
        ({}, "made no pod for it in 60 s: the cluster does not say why", "kubectl describe job"),
    ],
)
def test_a_pod_that_does_not_begin_is_named_as_by_the_cluster(
    found: dict[str, Any], cause: str, hint: str
) -> None:
    ended = pod_status.not_begun(TOLD, found, "5 GPUs", 60)

    assert (ended.kind, ended.phase) == (outcome.FAILED, "start")
    assert cause in ended.cause
    assert hint in ended.hint


def test_a_container_that_is_being_made_is_nothing_to_tell_of() -> None:
    assert pod_status.why_pending(pod({"waiting": {"reason": "ContainerCreating"}})) == ""
