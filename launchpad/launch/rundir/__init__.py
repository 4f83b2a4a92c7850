"""What a run has on disk: its directory, its record, its claim on GPUs and CPUs, its control socket."""
