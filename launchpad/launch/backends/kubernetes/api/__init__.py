"""The API of a cluster: requests, the rights they need, a watch of pods, their logs."""
