"""Each example is run as a user does: it checks its own answer, while it kills some of its workers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples import gallery
from examples._shared.places import folder_of
from tests.spark import sessions

LAUNCH_TYPES = {
    "threads": "local_mt",
    "processes": "local_mp",
    "Ray": "ray",
    "Kubernetes": "kubernetes",
    "Spark": "spark",
}
PLAIN = {
    "hello_world": ("the greeting is right", []),
    "consumer_producers": ("= 1229 primes below 10000", ["--producers=3", "--limit=10000"]),
}
"""What those print in the end that take no `--json`."""

LEARN_LONG = ("acme", "angel", "byteps", "determined", "es", "ps", "zero")

VARIES = ("acme", "angel", "pipedream")
"""In whose claims numbers depend on `--quick`, on Python's own files, or on how fast a layer is here."""


def runs() -> Iterator[Any]:
    """Each example on each of its backends; a system's threads show what its processes show."""
    for example in gallery.EXAMPLES:
        for backend in gallery.backends(example):
            is_again = backend == "threads" and example.shown
            # They may use more processor time than a test of `make test` may.
            learns_long = example.name in LEARN_LONG and backend == "processes"
            marks = [pytest.mark.endurance] if is_again or learns_long else []
            launch_type = LAUNCH_TYPES[backend]
            case = f"{example.name}-{launch_type}"
            yield pytest.param(example, launch_type, id=case, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("example", "launch_type"), list(runs()))
def test_all_holds_that_is_claimed_of_an_example_whoever_is_killed(
    run_example, example: gallery.Example, launch_type: str, tmp_path: Path
) -> None:
    if example.name in PLAIN:
        answer, flags = PLAIN[example.name]
        assert answer in run_example(example.name, launch_type, *flags)
        return
    written = tmp_path / gallery.CHECKED
    flags = [f"--json={written}", *example.flags, "--quick"]  # acme's are not for tests
    if example.name == "zero" and launch_type == "kubernetes":
        flags.append(f"--volume={json.dumps({'hostPath': {'path': str(tmp_path)}})}")

    printed = run_example(example.name, launch_type, *flags)

    claimed = claims_of(example, folder_of(example.name) / gallery.CHECKED)
    assert claims_of(example, written) == claimed
    assert "the answer is right" in printed


def claims_of(example: gallery.Example, file: Path) -> list[str]:
    """What has been checked, as the file says."""
    claims = [claim["claim"] for claim in json.loads(file.read_text())]
    if example.name in VARIES:
        return [re.sub(r"\d+", "#", claim) for claim in claims]
    return claims


# --- what flags change ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.endurance
@pytest.mark.parametrize("mode", ["ssp", "async"])
def test_ps_counts_every_gradient_once_although_a_shard_is_killed_while_none_is_in_step(
    run_example, mode: str
) -> None:
    flags = [f"--mode={mode}", "--workers=3", "--shards=3", "--kill_shard_at=150"]

    printed = run_example("ps", "local_mp", *flags)

    assert "ok    all this holds although the first shard was killed: " in printed
    assert "each once: 1200 + 1200 + 1200\n" in printed
    assert (mode == "ssp") == ("at most 10 gradients come between" in printed)


@pytest.mark.slow
@pytest.mark.endurance
def test_ps_in_async_replayed_in_the_recorded_order_gives_the_same_bits(
    run_example, tmp_path: Path
) -> None:
    digests = set()
    for flag in ("record", "replay"):
        printed = run_example("ps", "local_mp", "--mode=async", f"--{flag}={tmp_path}/order")
        digests |= set(re.findall(r"sha256 of the parameters: (\w{64})", printed))

    assert len(digests) == 1


@pytest.mark.slow
def test_mapreduce_counts_exactly_although_workers_are_killed_at_random(run_example) -> None:
    chaos = ["--chaos=0.5", "--chaos_kills=3", "--mappers=3"]

    printed = run_example("mapreduce", "local_mp", *chaos)

    assert "the counts agree" in printed
    assert "3 kills (seed 0): " in printed


def case(flags: str, claim: str, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(flags.split(), claim, id=flags, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "claim"),
    [
        case("horovod --backend=gloo --torch", "4 ranks learn what torch's DistributedData"),
        case("tf_replicator --jax", "4 devices of one process have the losses and parameters"),
        case("horovod --fp16", "in float16", pytest.mark.endurance),
        case("elephas --spark", "partitions of an RDD train the same model", pytest.mark.spark),
    ],
)
def test_with_more_libraries_an_example_checks_more(
    run_example, flags: list[str], claim: str
) -> None:
    if "--torch" in flags:
        pytest.importorskip("torch")
    if "--jax" in flags:
        pytest.importorskip("jax")
    if "--spark" in flags:
        sessions.skip_without_spark()
    name, *options = flags

    assert claim in run_example(name, "local_mp", "--quick", *options)
