"""The command line: `launchpad ps | logs | stop | stacks | plan | run`, one file for each."""
