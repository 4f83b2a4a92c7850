"""accelerate: bf16, gradients accumulated over two batches, and `save_state` after each epoch."""

from typing import Any

import launchpad as lp
import problem
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.optim import AdamW
from torch.utils.data import DataLoader

# part: train
OPTIONS = {
    "cpu": True,
    "mixed_precision": "bf16",
    "gradient_accumulation_steps": 2,
    "dataloader_config": DataLoaderConfiguration(use_seedable_sampler=True),
}


def train(group: lp.Collective, epochs: int) -> list[float]:
    group.init_torch(default_group=False)
    accelerator = Accelerator(**OPTIONS)
    model = problem.make_model()
    loader = DataLoader(problem.rows(20), batch_size=8, shuffle=True)
    parts = accelerator.prepare(model, AdamW(model.parameters(), lr=0.01), loader)
    first = group.broadcast_object(lp.current().load(default=0))
    if first:
        accelerator.load_state(lp.current().group_dir / str(first))
    for epoch in range(first, epochs):
        run_epoch(epoch, accelerator, *parts)
        accelerator.save_state(lp.current().group_dir / str(epoch + 1))
        group.barrier()
        lp.current().save(epoch + 1)  # this checkpoint is complete
    return problem.weights(model)


def run_epoch(
    epoch: int, accelerator: Accelerator, model: Any, optimizer: Any, loader: Any
) -> None:
    loader.set_epoch(epoch)  # the order of the rows depends on it
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()


# end
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, epochs=4), "local_mp", preload=["torch._dynamo", "accelerate"]))
