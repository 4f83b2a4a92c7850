"""What backends share whose workers run on other hosts: a worker host there starts each, and reports."""
