"""A tqdm bar of four steps that stands still in the third until a file is there. Usage: progress_bar.py FILE."""

import os
import sys
import time

from tqdm import tqdm

for step in tqdm(range(4), mininterval=0, miniters=1):
    while step == 2 and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
