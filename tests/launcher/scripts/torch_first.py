"""`train.py` as a script that imports torch before all else, so that its first workers are forked already."""

import torch  # noqa: F401  what counts is that it is imported here
import train  # type: ignore[import-not-found]  # beside this file, as a script's own modules are

train.main()
