"""A script as torchrun starts it: it knows nothing of launchpad."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--checkpoint", default="line.pt")
args = parser.parse_args()

# part: script
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
first = 0
if os.path.exists(args.checkpoint):
    first, weights, momenta = torch.load(args.checkpoint)
    model.load_state_dict(weights)
    optimizer.load_state_dict(momenta)
dist.barrier()  # all have read the same checkpoint

x = torch.linspace(0, 1, 64).reshape(-1, 1)[rank :: dist.get_world_size()]
for step in range(first, args.steps):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), 3 * x + 1).backward()
    optimizer.step()
    if step % 50 == 49 and rank == 0:
        torch.save((step + 1, model.state_dict(), optimizer.state_dict()), "new.pt")
        os.replace("new.pt", args.checkpoint)
        print(f"step {step + 1}:", [round(value.item(), 2) for value in model.parameters()])
dist.destroy_process_group()
# end
