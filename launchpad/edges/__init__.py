"""Edges: what happens to calls on their way, and what has gone over them.

    handle.through(Delay(0.05), Bandwidth(100e6))     a slow network, or a straggler
    handle.through(Record(folder)), Replay(folder)    the order of a server's calls, the same again
    running.edges()                                   numbers: calls, bytes, waiting

Example:
    slow = learner.through(lp.edges.Delay(0.05))                # one actor is far away
    program.add_node(lp.PyClassNode(Actor, slow), label="actor")
"""

from launchpad.courier.transport.link import Bandwidth, Delay
from launchpad.edges.recording import Record, Replay
from launchpad.telemetry.edge_stats import Edges, EdgeStats

__all__ = [
    # What calls go through.
    "Bandwidth",
    "Delay",
    "Record",
    "Replay",
    # What has gone over them.
    "Edges",
    "EdgeStats",
]
