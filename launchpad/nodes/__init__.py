"""The kinds of node, one file each. A new kind needs `create_handle` and `to_executable`."""
