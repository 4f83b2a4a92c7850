"""The `__main__` of processes that a worker starts with multiprocessing. No name of its own is left in it."""

from launchpad.launch.planning import main_module

main_module.send_by_value()
del main_module
__filled_by_launchpad__ = True
