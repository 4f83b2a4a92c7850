"""Large buffers between the processes of one host, past the socket."""
