"""`launchpad.courier` under the name that it has in dm-launchpad: `import courier`."""

from launchpad.courier import *  # noqa: F403
from launchpad.courier import __all__ as __all__
