"""TorchDistributor, which pyspark has for this today, on the same batches."""

from itertools import islice

import numpy as np

from examples._shared import networks
from examples._shared.data import Array
from examples._shared.spark import session
from examples.systems.gpipe.torch_pipeline import flat
from examples.systems.tf_on_spark.job import Job


def train_by_torch(job: Job) -> Array:
    """Train with as many ranks as workers; each reads the rows of one."""
    from pyspark.ml.torch.distributor import TorchDistributor

    with session():
        distributor = TorchDistributor(num_processes=job.workers, local_mode=True, use_gpu=False)
        return np.asarray(distributor.run(train_rank, job))


def train_rank(job: Job) -> Array:
    """Train as one of the ranks, until none of them has rows."""
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    args = job.args
    own_rows = job.rows_of(distributed.get_rank())
    network = networks.in_torch(args.widths, args.parameters)
    while True:
        rows = list(islice(own_rows, args.batch_size))
        network.zero_grad()
        images = torch.from_numpy(np.array([row.image for row in rows]).reshape(-1, args.widths[0]))
        labels = torch.tensor([row.label for row in rows], dtype=torch.int64)
        loss = torch.nn.functional.cross_entropy(network(images), labels, reduction="sum")
        torch.autograd.backward(loss)
        n_rows = torch.tensor(len(rows))
        distributed.all_reduce(n_rows)
        if not n_rows:
            return flat(parameter.detach() for parameter in network.parameters())
        with torch.no_grad():
            for parameter in network.parameters():
                distributed.all_reduce(parameter.grad)
                parameter -= args.learning_rate * parameter.grad / n_rows
