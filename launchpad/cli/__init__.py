"""The command line. `main.py` parses it, and each other file has the commands for one subject."""
