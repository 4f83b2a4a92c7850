"""Edges: ways to change the calls between nodes, and statistics of them.

    handle.through(Delay(0.05), Bandwidth(100e6))     simulate a slow network, or a straggler
    handle.through(Record(folder)), Replay(folder)    record the order of a server's calls, and repeat it
    running.edges()                                   statistics: calls, bytes, waiting

Example:
    slow = learner.through(lp.edges.Delay(0.05))                # one actor is far away
    program.add_node(lp.PyClassNode(Actor, slow), label="actor")
"""

from launchpad.courier.transport.link import Bandwidth, Delay
from launchpad.edges.recording import Record, Replay
from launchpad.telemetry.edge_stats import Edges, EdgeStats

__all__ = [
    # Given to `handle.through`.
    "Bandwidth",
    "Delay",
    "Record",
    "Replay",
    # Returned by `running.edges()`.
    "Edges",
    "EdgeStats",
]
