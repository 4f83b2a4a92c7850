"""`kubernetes`: every worker is a pod of a cluster.

backend      plan → workers                   manifests/   root, Secrets, Jobs, pod specs …, as data
create_run   creates what all pods share      pod_inputs/  the input of pods, packed into Secrets
pod_workers  starts, watches and ends pods    api/         requests, watches and logs of a cluster
detached/    runs without a launcher here     pod/         the first process of a worker's container
"""
