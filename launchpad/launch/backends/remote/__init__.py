"""Shared code of backends whose workers run on other hosts. There a worker host starts each, and reports."""
