"""The measurements of `python benchmarks/rpc.py`, and the contenders.

contenders/     one RPC library a file: its server of an echo, and its client
pairs.py        pairs of a server and a client process, their placement on cores, and their turns
latency.py …    one measurement a file: the contenders, the timed calls, the table
bars.py         our promises, and the paths of their figures
run.py          all measurements by name
"""
