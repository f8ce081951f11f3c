"""Saves snapshots on a volume that is full and then read-only: full_volume.py FOLDER, the root of a small tmpfs.

Prints a JSON object: which saves succeeded, the warnings, what was left of the failed ones, and the steps at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from elastic_infra.training.places import Disk
from elastic_infra.training.snapshots import Folder, Writer

PART = bytes(100_000)
root, warnings = Path(sys.argv[1]), list[str]()
folder = Folder(Disk(root), warnings.append)

saved = [folder.save(1, PART, Writer())]
filler = root / "filler"
filler.write_bytes(PART)
saved += [folder.save(step, PART, Writer()) for step in (2, 3)]
left_behind = [str(path) for draft in root.glob(".draft-*") for path in draft.iterdir()]
filler.unlink()
saved += [folder.save(4, PART, Writer())]
subprocess.run(["mount", "-o", "remount,ro", root], check=True)
saved += [folder.save(step, PART, Writer()) for step in (5, 6)]

line = {"saved": saved, "warnings": warnings, "left behind": left_behind, "steps": folder.steps()}
sys.stdout.write(json.dumps(line))
