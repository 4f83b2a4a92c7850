"""The files of a run: its directory, its record, its claim on GPUs and CPUs, its control socket."""
