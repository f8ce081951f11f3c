"""Part of the script's own tree: never loaded by the warm parent."""

import time

LOADED_AT = time.monotonic()
