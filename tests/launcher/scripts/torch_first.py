"""`train.py` as a script that imports torch before all else, so that its first workers are forked already.

A worker that has trained to the end leaves at once: that many interpreters which take torch apart cost several times
what is tested with this script. One that is told to stop ends as every script does.
"""

import os

import torch  # noqa: F401  what counts is that it is imported here
import train  # type: ignore[import-not-found]  # beside this file, as a script's own modules are

if train.main():
    os._exit(0)
