"""The command line: `main.py` reads it, and a file for each subject has the commands."""
