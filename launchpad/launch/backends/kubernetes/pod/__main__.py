"""The first process of a container: `python -m launchpad.launch.backends.kubernetes.pod ATTEMPT`."""

import sys

from launchpad.launch.backends.kubernetes.pod.entrypoint import main

main(int(sys.argv[1]))
