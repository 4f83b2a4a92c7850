"""FSDP2 in bf16, with checkpoints by torch.distributed.checkpoint."""

from typing import Any

import launchpad as lp
import problem
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


# part: train
class Training(Stateful):
    """A model and its optimizer, as torch.distributed.checkpoint saves and loads them."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def state_dict(self) -> dict[str, Any]:
        weights, moments = get_state_dict(*self.parts)
        return {"model_state_dict": weights, "optim_state_dict": moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(*self.parts, **state)


def train(group: lp.Collective, steps: int) -> list[float]:
    group.init_torch()
    model = fully_shard(problem.make_model(), mp_policy=MixedPrecisionPolicy(torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = {"training": Training(model, optimizer)}
    folder = lp.current().group_dir
    first = group.broadcast_object(lp.current().load(default=0))
    if first:
        dcp.load(state, checkpoint_id=folder / str(first))
    for step in range(first, steps):
        problem.train_step(model, optimizer, step, group.rank)
        if step % 5 == 4:
            dcp.save(state, checkpoint_id=folder / str(step + 1))
            lp.current().save(step + 1)  # this checkpoint is complete
    return problem.weights(model)


# end
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, steps=20), "local_mp", preload=["torch", "torch._dynamo"]))
