"""ssh: workers on a list of hosts, each of which launchpad connects with by the system's `ssh`."""
