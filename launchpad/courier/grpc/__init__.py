"""Courier over gRPC, for callers and tools that expect gRPC.

    Server ── GrpcServer ─┬─ CourierService      courier clients (channel.py): pickles, at most once
                          ├─ JsonService         callers in any language
                          ├─ HealthService       grpc.health.v1, for Kubernetes and load balancers
                          └─ ReflectionService   lists services and methods for tools such as grpcurl

This package is imported only when an address `grpc:…` is used, because it needs `launchpad-graph[grpc]`.
"""

import os

# gRPC's own fork handlers restart gRPC's threads in a forked child. Now and then that crashes the child,
# whether it uses gRPC or not. Without the handlers, a child is safe as long as it doesn't use gRPC, which
# common.py checks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
