"""torch.distributed.pipelining: each rank has a stage of the model, and saves its own."""

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
    me = lp.current()
    first = group.all_reduce(max(me.saved_versions(), default=0), op="min")  # all have saved it
    if first:
        problem.load_state(part, optimizer, me.load(version=first))
    for step in range(first, steps):
        train_step(schedule, optimizer, step, group.rank)
        me.save(problem.state_of(part, optimizer), version=step + 1)
    return problem.weights(part)


def train_step(
    schedule: Schedule1F1B, optimizer: torch.optim.Optimizer, step: int, rank: int
) -> None:
    x, y = problem.batch(step, rank=0)
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y)
    optimizer.step()


# end
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, steps=20), "local_mp", preload=["torch", "torch._dynamo"]))
