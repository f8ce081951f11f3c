"""Part of the script's own tree: never loaded by the fork server."""

import time

LOADED_AT = time.monotonic()
