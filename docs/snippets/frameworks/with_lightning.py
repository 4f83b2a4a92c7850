"""Lightning with DDP: `ckpt_path=` goes on from the last checkpoint."""

import os

import launchpad as lp
import problem
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader


# part: module
class Regression(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = problem.make_model()

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        return torch.nn.functional.mse_loss(self.model(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


# part: train
def train(group: lp.Collective, epochs: int) -> list[float]:
    group.init_torch(default_group=False)
    last = lp.current().group_dir / "last.ckpt"
    trainer = Trainer(
        max_epochs=epochs,
        strategy="ddp",
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        callbacks=[ModelCheckpoint(last.parent, save_last=True)],
        logger=False,
    )
    loader = DataLoader(problem.rows(20), batch_size=8)
    trainer.fit(Regression(), loader, ckpt_path=last if last.exists() else None)
    return problem.weights(trainer.lightning_module)


# end
if __name__ == "__main__":
    print(lp.run(lp.ranks(train, 2, epochs=4), "local_mp", preload=["torch._dynamo", "lightning"]))
