"""A worker that runs a pickled function: ``python -m ...call FILE``, started by ``api.elastic_launch``.

The function's result is left for the caller by global rank; an exception goes where torch's ``record`` puts it.
"""

from __future__ import annotations

import os
import pickle
import sys
from multiprocessing import spawn
from pathlib import Path

from ..settings import PREFIX


def main() -> None:
    """Call the function and leave its result."""
    folder = Path(os.environ[PREFIX + "RESULTS"])
    rank = os.environ["RANK"]
    main_module, call = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301  written by the calling process
    spawn.prepare(main_module)  # spawned processes of multiprocessing call this too
    function, arguments = pickle.loads(call)  # noqa: S301  the same
    try:
        value = function(*arguments)
    except BaseException:  # noqa: BLE001  the caller gets every exception
        error_file = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
        sys.excepthook(*sys.exc_info())
        if error_file and Path(error_file).exists():
            (folder / f"{rank}.error").write_bytes(Path(error_file).read_bytes())
        raise SystemExit(1) from None
    (folder / f"{rank}.result").write_bytes(pickle.dumps(value))


if __name__ == "__main__":
    main()
