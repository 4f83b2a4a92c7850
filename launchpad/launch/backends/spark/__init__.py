"""Spark: the tasks of a barrier stage are hosts, each of which starts workers as processes of their own."""
