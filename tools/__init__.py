"""Sets a checkout up and builds its tools; what runs before anything is installed needs the standard library alone."""

import platform
import sys

if sys.version_info < (3, 10):  # noqa: UP036 - an older Python is told so here, before it stumbles over the syntax
    found = platform.python_version()
    sys.exit("Python " + found + " is older than 3.10. Install a newer one and name it: make PYTHON=...")
