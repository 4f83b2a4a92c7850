"""The objects of a run, as data: its root, Secrets, a Service, Jobs and the specs of their pods."""
