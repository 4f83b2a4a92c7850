"""The measurements of `python benchmarks/rpc.py`, and the contenders.

contenders/     one RPC a file: how it serves an echo, and how its client calls it
pairs.py        a server's and a client's process, on which cores they run, and everybody's turn
latency.py …    one measurement a file: the contenders, what is timed, how the table is printed
bars.py         what we promise, beside what was measured
run.py          all measurements by name
"""
