"""``train.py`` as a script that imports torch before all else: every worker of it is forked, the first ones too."""

from __future__ import annotations

import torch  # noqa: F401  what counts is that it is imported here

from tests.launcher.soak import train

if __name__ == "__main__":
    train.main()
