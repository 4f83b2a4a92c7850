"""Calls between hosts that fail at random, and what must be true of them, for `benchmarks/hosts.py`.

faults.py    the kinds of faults, and a schedule of them drawn from a seed
pair.py      two hosts of a network: a server on one, callers on the other
server.py    what runs on the server's host: it notes each call before it answers
caller.py    what runs on the other host: threads and coroutines that make calls of each kind
verdict.py   what the calls' records and the faults' times say together
"""
