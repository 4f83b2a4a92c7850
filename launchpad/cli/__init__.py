"""The command line: `main.py` reads it, and there is a file of commands for each subject."""
