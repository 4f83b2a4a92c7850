"""torch.distributed.pipelining: each rank has a stage of the model, and rank 0 saves all of them."""

import launchpad as lp
import problem
import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


# part: train
def train(group: lp.Collective, steps: int) -> list[float]:
    group.init_torch()
    model = problem.make_model()
    part = model[:2] if group.rank == 0 else model[2:]
    stage = PipelineStage(part, group.rank, group.size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(part.parameters(), lr=0.01)
    first, states = group.broadcast_object(lp.current().load(default=(0, None)))  # rank 0's
    if first:
        part.load_state_dict(states[group.rank][0])
        optimizer.load_state_dict(states[group.rank][1])
    for step in range(first, steps):
        x, y = problem.batch(step, rank=0)
        optimizer.zero_grad()
        schedule.step(x) if group.rank == 0 else schedule.step(target=y)
        optimizer.step()
        states = group.gather_object((part.state_dict(), optimizer.state_dict()))
        if group.rank == 0:
            lp.current().save((step + 1, states))
    return problem.weights(part)


# end
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, steps=20), "local_mp", preload=["torch", "torch._dynamo"]))
