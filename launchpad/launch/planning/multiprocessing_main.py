"""What multiprocessing runs as `__main__` in a process that a worker starts; it leaves no name of its own."""

from launchpad.launch.planning import main_module

main_module.send_by_value()
del main_module
__filled_by_launchpad__ = True
