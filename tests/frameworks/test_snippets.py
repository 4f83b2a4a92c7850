"""The snippets of `docs/your_framework.md`: training that is killed ends with the same weights.

`make test-frameworks` runs these tests, in an environment of their own.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import pytest

import launchpad as lp
from tests.frameworks import nodes

if importlib.util.find_spec("accelerate") is None:
    pytest.skip("the frameworks are not installed", allow_module_level=True)

# Frameworks warn of much, and workers have the filters of the script.
pytestmark = pytest.mark.filterwarnings("default")

AT_ONCE = lp.RestartPolicy(scope="group", backoff=0, stop_grace_s=1)
STEPS = {"steps": 20}
EPOCHS = {"epochs": 4}


@dataclass(frozen=True)
class Case:
    """A snippet, and how it is trained here.

    Attributes:
        snippet: The name of its file.
        arguments: The arguments of its `train`.
        n_steps: The steps that training takes.
        dies_at: The step in which the last rank is killed.
        n_left: How many of the steps come after the last checkpoint before that.
        preload: Modules that it imports late.
        is_split: True if each rank has other weights.
    """

    snippet: str
    arguments: dict[str, int]
    n_steps: int
    dies_at: int
    n_left: tuple[int, ...]
    preload: tuple[str, ...] = ("torch._dynamo",)
    is_split: bool = False

    def __str__(self) -> str:
        return self.snippet


# Where each step is saved, rank 0 may or may not save the step in which the other rank dies.
CASES = [
    Case("ddp", STEPS, 20, 12, (8, 9)),
    Case("fsdp", STEPS, 20, 12, (11,)),  # get_state_dict() makes one step, of length 0
    Case("pipeline", STEPS, 20, 12, (9,), is_split=True),
    Case("for_torchrun", {}, 200, 112, (100,)),
    Case("with_accelerate", EPOCHS, 20, 12, (10,)),
    Case("with_trainer", {"epochs": 5}, 20, 12, (10,)),
    Case("with_lightning", EPOCHS, 40, 32, (10,)),
    Case("with_deepspeed", STEPS, 20, 12, (10,)),
    Case("with_jax", STEPS, 20, 12, (9,), ("jax", "optax")),
    Case("with_keras", EPOCHS, 20, 12, (10,), ("jax", "tensorflow")),
    Case("with_tensorflow", STEPS, 20, 12, (9,), ()),
]

# One for torch and one for jax. Neither needs a folder that all hosts have.
ON_RAY = ("ddp", "with_jax")


@pytest.fixture(autouse=True)
def snippets_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(nodes.SNIPPETS))


def program_of(case: Case) -> lp.Program:
    """Return a program of two groups that train: one is left alone, and a rank of the other is killed."""
    program = lp.Program(case.snippet)
    for label, dies_at in (("undisturbed", None), ("killed", case.dies_at)):
        with program.group(label, restart=AT_ONCE):
            for _ in range(2):
                node = lp.CollectiveNode(nodes.train, case.snippet, dies_at, **case.arguments)
                program.add_node(node)
    return program


def check(case: Case, launch_type: str) -> None:
    own = [] if case.snippet == "for_torchrun" else [case.snippet]  # a script is not imported
    preload = [*own, *case.preload]

    results = lp.run(program_of(case), launch_type, preload=preload, timeout_s=240)

    undisturbed = results["undisturbed"]
    killed = results["killed"]
    # Ranks that don't know of each other would make more steps, or have different weights.
    assert [n_steps for _, n_steps in undisturbed] == [case.n_steps] * 2
    assert case.is_split or undisturbed[0] == undisturbed[1]
    assert {n_steps for _, n_steps in killed} <= set(case.n_left)
    assert [weights for weights, _ in killed] == [weights for weights, _ in undisturbed]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_training_that_is_killed_goes_on_and_ends_with_the_same_bits(case: Case) -> None:
    check(case, "test_mp")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", [case for case in CASES if case.snippet in ON_RAY], ids=str)
def test_training_that_is_killed_on_ray_ends_with_the_same_bits(
    case: Case, ray_cluster: object
) -> None:
    check(case, "test_ray")
