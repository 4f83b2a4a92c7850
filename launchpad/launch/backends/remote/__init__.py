"""Shared code of backends with workers on other hosts. There, a worker host starts each and reports."""
