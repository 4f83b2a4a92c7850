"""Training with DDP: when a rank dies, all start again, and go on where rank 0 has saved."""

import launchpad as lp


# part: train
def train(group: lp.Collective, steps: int) -> list[float]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    group.init_torch()  # as torchrun does: variables, and the default group
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    me = lp.current()
    saved = group.broadcast_object(me.load() if group.rank == 0 else None)
    first, weights, momenta = saved or (0, model.state_dict(), optimizer.state_dict())
    model.load_state_dict(weights)
    optimizer.load_state_dict(momenta)
    x = torch.linspace(0, 1, 64).reshape(-1, 1)[group.rank :: group.size]
    for step in range(first, steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), 3 * x + 1).backward()
        optimizer.step()
        if step == 20 and group.generation == 1 and group.rank == 1:
            lp.testing.crash()
        if group.rank == 0:
            me.save((step + 1, model.state_dict(), optimizer.state_dict()))
    return [round(value.item(), 2) for value in model.parameters()]


# part: program
program = lp.Program("ddp")
with program.group("trainer", restart=lp.RestartPolicy(scope="group")):
    program.add_node(lp.CollectiveNode(train, 200), replicas=2)
if __name__ == "__main__":
    preload = ["torch", "torch._dynamo"]  # which DDP imports when it is built
    print(lp.run(program, "local_mp", preload=preload)["trainer"])
# end
