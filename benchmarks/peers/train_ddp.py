"""A training script for torchrun: DDP on gloo, with a checkpoint after every fifth step. See ../ranks.py.

It writes the checkpoint, and a note of each step of each rank, into the current folder.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pause_s", type=float, default=0.02, help="after each step")
args = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
# Else DDP orders its sums in another way after the first step, and restarts would change the last bits.
model = DistributedDataParallel(network, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
checkpoint = Path("checkpoint.pt")
first = 0
if checkpoint.exists():
    first, weights, momenta = torch.load(checkpoint)
    model.load_state_dict(weights)
    optimizer.load_state_dict(momenta)
dist.barrier()
notes = os.open("notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for step in range(first, args.steps):
    random = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(8, 16, generator=random)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    generation = os.environ["TORCHELASTIC_RESTART_COUNT"]
    note = [generation, rank, step, os.getpid(), time.monotonic(), time.process_time()]
    os.write(notes, f"{' '.join(map(str, note))}\n".encode())
    if rank == 0 and step % 5 == 4:
        new = checkpoint.with_suffix(".new")
        torch.save((step + 1, model.state_dict(), optimizer.state_dict()), new)
        new.replace(checkpoint)
    time.sleep(args.pause_s)
dist.barrier()
dist.destroy_process_group()
