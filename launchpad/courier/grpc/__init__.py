"""Courier over gRPC, for places where others expect gRPC.

    Server ── GrpcServer ─┬─ CourierService      courier clients (channel.py): pickles, at most once
                          ├─ JsonService         callers in any language
                          ├─ HealthService       grpc.health.v1, for Kubernetes and load balancers
                          └─ ReflectionService   lists services and methods for tools such as grpcurl

This is imported only when an address `grpc:…` is used, because it needs `launchpad-graph[grpc]`.
"""

import os

# gRPC's own fork handlers restart its threads in a forked child, and now and then crash the child, whether
# it uses gRPC or not. Without them a child is safe as long as it uses none, which common.py checks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
