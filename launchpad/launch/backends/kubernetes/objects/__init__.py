"""The objects of a run, as data: Secrets, a Service, Jobs and what their pods are to be."""
