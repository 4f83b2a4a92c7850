"""The command line: `python -m launchpad ps | logs | stop | stacks`, one file for each."""
