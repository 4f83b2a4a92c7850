"""TF-Replicator: a training step written for one device, run by one replica or by many."""
