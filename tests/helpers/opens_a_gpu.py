"""A module that opens the GPU when it is imported, which must not happen before a fork."""

import torch

MATRIX = torch.ones(2, 2, device="cuda")
