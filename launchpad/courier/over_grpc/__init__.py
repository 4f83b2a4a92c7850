"""Courier over gRPC: where gRPC is what others expect.

    Server ── Door ─┬─ CourierService      courier clients (stub.py): pickles, at most once
                    ├─ JsonService         callers in any language
                    ├─ HealthService       grpc.health.v1, for Kubernetes and load balancers
                    └─ ReflectionService   what grpcurl asks before it calls

Imported when an address `grpc:…` is used, since it needs `launchpad[grpc]`.
"""
