"""Train a classifier with torch on four processes."""

import launchpad as lp
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(group: lp.Collective, num_epochs: int) -> float:
    group.init_torch()  # makes the process group that DDP uses
    torch.manual_seed(0)  # the same data and the same first weights in all ranks
    points = torch.rand(8192, 2) * 2 - 1
    labels = (points.norm(dim=1) < 0.8).long()  # is the point in this circle?
    sampler = DistributedSampler(points)  # each rank reads a quarter of the data
    loader = DataLoader(TensorDataset(points, labels), batch_size=64, sampler=sampler)
    network = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    checkpoint = group.broadcast_object(lp.current().load() if group.rank == 0 else None)
    first_epoch = 0
    if checkpoint:
        first_epoch, model_state, optimizer_state = checkpoint
        model.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)

    for epoch in range(first_epoch, num_epochs):
        sampler.set_epoch(epoch)  # shuffles differently in each epoch
        for batch, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()  # averages the gradients of all ranks
            optimizer.step()
        if group.rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")
            lp.current().save((epoch + 1, model.state_dict(), optimizer.state_dict()))
    return (model(points).argmax(dim=1) == labels).float().mean().item()


program = lp.ranks(train, 4, num_epochs=5)
accuracies = lp.run(program, preload=["torch", "torch._dynamo"])["rank"]
print("accuracy:", [round(accuracy, 2) for accuracy in accuracies])
