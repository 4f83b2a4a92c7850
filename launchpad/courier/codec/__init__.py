"""The encoding of arguments and results: values as bytes and buffers, and the memory they arrive in."""
