"""What `python benchmarks/rpc.py` measures, and against whom.

contenders/     one RPC a file: how it serves an echo, and how its client calls it
contender.py    a name, a server, a client, and why it may be missing
worker.py       a process of ours that does as it is told;  pair.py  a server's and a client's
placement.py    on which cores the two run;                 turns.py everybody's turn, round by round
latency.py …    one measurement a file: the contenders, what is timed, how the table is printed
bars.py         what we promise, beside what was measured
"""
