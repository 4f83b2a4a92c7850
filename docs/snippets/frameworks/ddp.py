"""torch's DistributedDataParallel: rank 0 saves, and all ranks go on with what it has saved."""

import launchpad as lp
import problem
import torch
from torch.nn.parallel import DistributedDataParallel


# part: train
def train(group: lp.Collective, steps: int) -> list[float]:
    group.init_torch()
    model = DistributedDataParallel(problem.make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    me = lp.current()
    start = (0, problem.state_of(model, optimizer))
    first, state = group.broadcast_object(me.load(default=start))  # rank 0's
    problem.load_state(model, optimizer, state)
    for step in range(first, steps):
        problem.train_step(model, optimizer, step, group.rank)
        if group.rank == 0:
            me.save((step + 1, problem.state_of(model, optimizer)))
    return problem.weights(model)


# part: run
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, steps=20), "local_mp", preload=["torch", "torch._dynamo"]))
# end
