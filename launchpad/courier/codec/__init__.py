"""The encoding of what calls carry: values as bytes and buffers, and the memory they arrive in."""
