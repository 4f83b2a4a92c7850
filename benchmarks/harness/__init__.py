"""All that benchmarks share, so that each file says only what it measures.

command_line.py  the options of a script, its report as JSON, its exit status
figures.py       rounds in turn, medians, ratios, percentiles, tables
bars.py          what is promised, beside what was measured
processes.py     other processes: workers, and the script's own functions in a new interpreter
programs.py      the same node many times, launched with nothing on the screen
holdings.py      what processes hold: memory, threads, descriptors, files; and what is left of them
machine.py       where, when and with what it was measured
"""
