"""`kubernetes`: every worker is a pod of a cluster.

backend      plan → workers                  objects/    Secrets, Service, Jobs, as data
making       a run's objects, made           cluster/    what is asked of a cluster
attempts/    begun, watched, ended           post/       what launcher and pods send each other
left/        runs without a launcher         pod/        what runs in a container
"""
