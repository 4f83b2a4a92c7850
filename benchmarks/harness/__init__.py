"""The parts that benchmarks share, so that each file holds only its own measurement.

command_line.py  the options of a script, its report as JSON, its exit status
figures.py       rounds in turn, medians, ratios, percentiles, tables
bars.py          our promises, beside the measured figures
processes.py     other processes: workers, and the script's own functions in a new interpreter
programs.py      a program with one node many times, launched with nothing on the screen
holdings.py      the memory, threads, descriptors and files of processes, and what is left of them
machine.py       the machine, the time and the versions of a measurement
"""
