"""The kinds of node. One file each; a new kind needs `create_handle` and `to_executable`."""
