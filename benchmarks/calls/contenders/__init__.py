"""One RPC a file: how it serves an echo, and how its client calls it.

What they pickle, they pickle alike.
"""
