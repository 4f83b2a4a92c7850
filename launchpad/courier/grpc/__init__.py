"""Courier over gRPC: where gRPC is what others expect.

    Server ── GrpcServer ─┬─ CourierService      courier clients (channel.py): pickles, at most once
                    ├─ JsonService         callers in any language
                    ├─ HealthService       grpc.health.v1, for Kubernetes and load balancers
                    └─ ReflectionService   what grpcurl asks before it calls

Imported when an address `grpc:…` is used, since it needs `launchpad-graph[grpc]`.
"""

import os

# gRPC's own handlers revive its threads in a forked child, and those crash it now and then, whether it uses
# gRPC or not. Without them a child is safe as long as it uses none, which common.py checks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
