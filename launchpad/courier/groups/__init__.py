"""Many clients as one."""
