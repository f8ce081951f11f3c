"""``train.py`` as a script that sets a variable before its imports, as many do: nothing of it may be loaded early."""

import os
import sys
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch  # noqa: F401  the variable above comes before it, which is what this script is about

from benchmarks.launcher import train

if __name__ == "__main__":
    train.main(Path(sys.argv[1]))
