"""Writes a worker's surroundings: environment, arguments, and how the worker is run."""

from __future__ import annotations

import json
import os
import sys

found = {
    "environ": dict(os.environ),
    "argv": sys.argv,
    "cwd": os.getcwd(),
    "name": __name__,
    "file": __file__,
    "path": sys.path[0],
    "unbuffered": getattr(sys.stdout, "write_through", False),
    "main": sys.modules["__main__"].__dict__ is globals(),
    "spec": getattr(__spec__, "name", None),
    "package": __package__,
    "session": os.getsid(0) == os.getpid(),
}
with open(os.path.join(os.environ["DUMP"], os.environ["RANK"]), "w", encoding="utf-8") as file:
    json.dump(found, file)
