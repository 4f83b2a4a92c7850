"""The objects of a run, as data: Secrets, a Service, Jobs and the specs of their pods."""
