"""A rank that trains as a snippet does, counts its steps, and can be killed at one of them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launchpad as lp
from launchpad.collectives.script import Script

SNIPPETS = Path(__file__).parents[2] / "docs/snippets/frameworks"
SCRIPT = SNIPPETS.parent / "on_torch/for_torchrun.py"


def train(
    group: lp.Collective, snippet: str, dies_at: int | None, **arguments: Any
) -> tuple[list[float], int]:
    """Return the weights, and the number of steps that this generation has done.

    With `dies_at`, the last rank is killed in the first generation, in that step.
    """
    if str(SNIPPETS) not in sys.path:
        sys.path.insert(0, str(SNIPPETS))
    count = _Steps(group, dies_at)
    if snippet == "for_torchrun":
        return _run_script(group, count)
    module = importlib.import_module(snippet)
    if hasattr(module, "batch"):
        module.batch = _counted(module.batch, count)
    elif snippet == "with_keras":
        module.Saver.on_train_batch_end = lambda *_, logs: count()
    else:
        _call_after_steps_of_torch(count)
    return module.train(group, **arguments), count.number


class _Steps:
    """The number of steps so far. One of them kills the process."""

    def __init__(self, group: lp.Collective, dies_at: int | None) -> None:
        is_victim = group.generation == 1 and group.rank == group.size - 1
        self.number = 0
        self._dies_at = dies_at if is_victim else None

    def __call__(self, *_: object) -> None:
        self.number += 1
        if self.number == self._dies_at:
            lp.testing.crash()


def _call_after_steps_of_torch(count: Callable[..., None]) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(count)


def _counted(batch: Callable[..., Any], count: Callable[..., None]) -> Callable[..., Any]:
    def counted_batch(*args: Any) -> Any:
        count()
        return batch(*args)

    return counted_batch


def _run_script(group: lp.Collective, count: _Steps) -> tuple[list[float], int]:
    """Run a script as `launchpad run --ranks` does, and return the weights in its checkpoint."""
    import torch

    _call_after_steps_of_torch(count)
    os.chdir(lp.current().group_dir)
    Script.of_file(str(SCRIPT), [])(group)
    group.barrier()  # rank 0 has written its last checkpoint
    _, weights, _ = torch.load("line.pt")
    return torch.cat([value.flatten() for value in weights.values()]).tolist(), count.number
