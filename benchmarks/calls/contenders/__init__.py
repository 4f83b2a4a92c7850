"""The contenders, one RPC library a file: its server of an echo, and its client.

All contenders that pickle use the same protocol.
"""
