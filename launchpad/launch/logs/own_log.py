"""Launchpad's own log, which `--lp_log_level` turns on. It is off otherwise.

    launchpad.launch         a program begins and ends
    launchpad.supervision    workers start, get ready, end; which of them are started again, and why
    launchpad.courier        connections are opened, refused and lost; calls are sent again
    launchpad.state          what workers save and load
    launchpad.collectives    generations of a group begin and end
    launchpad.hosts          leases of hosts end, hosts are lost and come back, workers are placed
    launchpad.ssh, launchpad.slurm, launchpad.ray, launchpad.spark, launchpad.kubernetes
                             connections with hosts, requests to a cluster

These are loggers of Python's `logging`. INFO is for the lifecycle, DEBUG for reconnects, retries, handshakes,
decisions and requests. Nothing is logged for a call that goes well.

They have no `NullHandler`. Python prints the warnings of a logger without handlers on stderr, and launchpad's
warnings must be seen. A `NullHandler` would count as a handler.
"""

from __future__ import annotations

import logging

LOGGER = "launchpad"
"""The logger above all of launchpad's loggers."""

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_level(level: str) -> None:
    """Show launchpad's log from this level on, in this process and in workers that start later.

    If the script has set up logging, its handlers get the lines. Otherwise they go to stderr, which in a
    worker is the worker's log.

    Args:
        level: A name of `logging`'s, such as "DEBUG". If it is empty, the level that the script has set for
            the logger `launchpad` stays. If the script has set no level, only warnings are shown, even if the
            script shows INFO of all other loggers, as absl and hydra do.
    """
    logger = logging.getLogger(LOGGER)
    if not level:
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
        return
    logger.setLevel(level)
    if not logger.hasHandlers():
        # `LoggingSettings` describes this handler, so workers get it, too.
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
        logger.addHandler(handler)
