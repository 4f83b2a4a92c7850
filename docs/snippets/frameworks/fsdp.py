"""FSDP2 in bf16, with checkpoints by torch.distributed.checkpoint."""

from typing import Any

import launchpad as lp
import problem
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


# part: train
def train(group: lp.Collective, steps: int) -> list[float]:
    group.init_torch()
    model = problem.make_model()
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    folder = lp.current().group_dir
    first = group.broadcast_object(lp.current().load(default=0))
    if first:
        state = state_of(model, optimizer)
        dcp.load(state, checkpoint_id=folder / str(first))
        set_state_dict(model, optimizer, **state)
    for step in range(first, steps):
        optimizer.zero_grad()
        problem.loss(model, step, group.rank).backward()
        optimizer.step()
        if step % 5 == 4:
            dcp.save(state_of(model, optimizer), checkpoint_id=folder / str(step + 1))
            lp.current().save(step + 1)  # this checkpoint is complete
    return problem.weights(model)


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model_state_dict": weights, "optim_state_dict": moments}


# end
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, steps=20), "local_mp", preload=["torch", "torch._dynamo"]))
