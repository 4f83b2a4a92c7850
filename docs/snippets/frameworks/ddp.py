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
    start = (0, model.state_dict(), optimizer.state_dict())
    first, weights, moments = group.broadcast_object(me.load(default=start))  # rank 0's
    model.load_state_dict(weights)
    optimizer.load_state_dict(moments)
    for step in range(first, steps):
        optimizer.zero_grad()
        problem.loss(model, step, group.rank).backward()
        optimizer.step()
        if group.rank == 0:
            me.save((step + 1, model.state_dict(), optimizer.state_dict()))
    return problem.weights(model)


# part: run
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, steps=20), "local_mp", preload=["torch", "torch._dynamo"]))
# end
