"""`train.py` as a script that sets a variable before it imports torch, which reads it."""

import os

os.environ["OMP_NUM_THREADS"] = "2"

import torch  # noqa: F401  what counts is that it is imported after the line above
import train  # type: ignore[import-not-found]  # beside this file, as a script's own modules are

train.main()
