"""`kubernetes`: every worker is a pod of a cluster."""
