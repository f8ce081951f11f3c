"""The real fork server, with a small stand-in for torch: what it loads, what it leaves out, what its workers find."""

from __future__ import annotations

import json
import os
import pathlib
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from elastic_infra.launcher.command_line.plan import Entrypoint
from elastic_infra.launcher.workers import bootstrap, fork_server, import_scan, progress
from elastic_infra.manifests import archive

WORKERS = pathlib.Path(bootstrap.__file__).parent
DRIVER = pathlib.Path(__file__).parents[1] / "scripts" / "fork_once.py"
ROOT = pathlib.Path(__file__).parents[3]
TORCH = "class default_generator:\n    seed = staticmethod(lambda: None)\n"


class Place:
    """A folder with a program, a folder of installed packages, and the launcher's own files."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.run_dir = folder / "run"
        self.modules = self.run_dir / "modules"
        self.program = folder / "program"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.base = folder / "base"
        self.site = self.base / "lib" / version / "site-packages"
        for path in (self.modules, self.program, self.site / "torch"):
            path.mkdir(parents=True)
        for name in ("bootstrap", "fork_server"):
            shutil.copy(WORKERS / f"{name}.py", self.run_dir / f"elastic_infra_{name}.py")
        (self.site / "torch" / "__init__.py").write_text(TORCH)
        (self.site / "torch" / "distributed.py").touch()
        self.script = self.program / "train.py"
        self.environ = {
            **os.environ,
            "PYTHONUSERBASE": str(self.base),
            "PYTHONPATH": os.pathsep.join([str(self.site), str(ROOT)]),
        }

    def installed(self, **sources: str) -> None:
        """Write modules as an installed package has them."""
        for name, source in sources.items():
            (self.site / f"{name}.py").write_text(source)

    def run_cold(self, ranks: int = 2) -> list[subprocess.CompletedProcess[str]]:
        """A first generation without a fork server; it leaves its records."""
        return [
            subprocess.run(
                [sys.executable, "-u", str(self.run_dir / "elastic_infra_bootstrap.py"), "script", str(self.script)],
                env={**self.environ, "RANK": str(rank), "ELASTIC_INFRA_MODULES": str(self.modules / str(rank))},
                capture_output=True,
                text=True,
                check=False,
            )
            for rank in range(ranks)
        ]

    def fork(self, *declared: str, **environ: str) -> dict[str, Any]:
        """Load, then fork a worker for each of two ranks; what the fork server said."""
        done = subprocess.run(
            [sys.executable, str(DRIVER), str(self.run_dir), "script", str(self.script), *declared],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def output(self, stream: str = "stdout", rank: int = 0) -> str:
        """What a forked worker wrote."""
        return (self.run_dir / f"{stream}-{rank}").read_text()


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    return Place(tmp_path)


def test_what_workers_imported_is_loaded_with_its_changes_made_first(place: Place) -> None:
    """Variables, path and filters that the program changes before an import are there when it is loaded."""
    place.installed(
        reads="import os, sys, warnings\nSEEN = os.environ.get('MODE'), 'extra' in sys.path, warnings.filters[0][0]\n"
    )
    place.script.write_text(
        "import torch, os, sys, warnings\nprint(os.environ.get('MODE'), 'extra' in sys.path, 'reads' in sys.modules)\n"
        "os.environ['MODE'] = 'fast'\nsys.path.append('extra')\nwarnings.simplefilter('ignore')\n"
        "def late():\n    import reads\n    print(reads.SEEN)\nlate()\n"
    )
    cold = [done.stdout for done in place.run_cold()]
    told = place.fork()

    assert told["ready"], told
    assert told["codes"] == [0, 0]
    assert cold[0] == "None False False\n('fast', True, 'ignore')\n"
    assert place.output() == cold[0].replace("False False", "False True")


READS = {
    "getenv": "RANK = os.getenv('RANK')",
    "get": "RANK = os.environ.get('RANK')",
    "in": "RANK = os.environ['RANK'] if 'RANK' in os.environ else None",
    "copy": "RANK = dict(os.environ).get('RANK')",
    "kept copy": "ALL = {**os.environ}\nRANK = lambda: ALL['RANK']",
    "number": "RANK = int(os.environ.copy()['RANK'])",
    "text": "RANK = next(f'{value}' for name, value in os.environ.items() if name == 'RANK')",
    "pieces": "RANK = ''.join(name[:0] + value for name, value in os.environ.items() if name.startswith('RANK'))",
    "comparison": "RANK = [0, 1][any(name == 'RANK' and value == '1' for name, value in os.environ.items())]",
    "name of a name": "RANK = next(os.environ[name] for name in os.environ if name == 'RANK')",
}


@pytest.mark.parametrize("kind", READS)
def test_what_reads_a_workers_own_variables_is_left_to_it(place: Place, kind: str) -> None:
    """So is what imports it; every worker then sees its own rank."""
    place.installed(asks=f"import os\n{READS[kind]}\n", outer="import asks\n", other="")
    place.script.write_text(
        "import torch, other, outer, asks, sys\nprint(asks.RANK() if callable(asks.RANK) else asks.RANK)\n"
    )
    told = place.fork("torch", "other", "outer", "asks")

    assert [name.split()[0] for name in told["left_out"]] == ["outer", "asks"]
    assert [place.output(rank=rank) for rank in (0, 1)] == ["0\n", "1\n"]


def test_what_sets_a_workers_own_variable_is_left_to_it(place: Place) -> None:
    """A worker then finds what the import sets, and not what the launcher gave it."""
    place.installed(sets="import os\nos.environ['RANK'] = '7'\n")
    place.script.write_text("import torch, sets, os\nprint(os.environ['RANK'])\n")
    told = place.fork("torch", "sets")

    assert told["left_out"] == ["sets (sets RANK)"]
    assert place.output() == "7\n"


def test_who_walks_through_all_variables_reads_none_of_a_workers_own(place: Place) -> None:
    """To look for variables of one prefix, as tqdm does, or to hand all of them to a process, as ctypes does."""
    place.installed(
        prefixed="import os\nFOUND = {name[4:]: value for name, value in os.environ.items() if name[:4] == 'BAR_'}\n",
        loop="import os\nFOUND = 0\nfor name in os.environ:\n    FOUND += name.endswith('_OF_A_BAR')\n",
        runs="import os, subprocess\nFOUND = subprocess.check_output(['printenv', 'BAR_A'], env={**os.environ})\n",
        finds="import ctypes.util\nFOUND = bool(ctypes.util.find_library('c'))\n",
        restores="import os\nFOUND = os.environ.copy()\nFOUND = len(FOUND) > 0\n",
    )
    names = ("prefixed", "loop", "runs", "finds", "restores")
    place.script.write_text(
        f"import torch, sys\nprint({{*{names}}} <= {{*sys.modules}})\nimport {', '.join(names)}\n"
        f"print({', '.join(f'{name}.FOUND' for name in names)})\n"
    )
    place.environ.update({"BAR_A": "1", "WIDTH_OF_A_BAR": "2"})
    told = place.fork("torch", *names)

    assert told["left_out"] == []
    assert place.output() == "True\n{'A': '1'} 1 b'1\\n' True True\n"


def test_what_ranks_import_differently_is_left_out(place: Place) -> None:
    """A module that only one rank imports, or each rank under another variable, is imported by each worker."""
    place.installed(only="", mixed="", alike="")
    place.script.write_text(
        "import torch, os, sys\nprint([each for each in ('only', 'mixed', 'alike') if each in sys.modules])\n"
        "import alike\nif os.environ['RANK'] == '0':\n    import only\n"
        "os.environ['PLACE'] = os.environ['RANK']\nimport mixed\n"
    )
    place.run_cold()
    place.fork()

    assert place.output() == "['alike']\n"


def test_a_module_of_the_program_is_not_swapped_for_an_installed_namesake(place: Place) -> None:
    """Neither where the program imports it nor where an installed package does."""
    place.installed(datasets="NAME = 'installed'\n", uses="import datasets\nNAME = datasets.NAME\n")
    (place.program / "datasets.py").write_text("NAME = 'own'\n")
    place.script.write_text(
        "import torch\ndef load():\n    import datasets, uses\n    print(datasets.NAME, uses.NAME)\nload()\n"
    )
    assert [done.stdout for done in place.run_cold()] == ["own own\n"] * 2
    told = place.fork()
    assert place.output() == "own own\n"
    place.fork("torch", "uses")

    assert place.output().splitlines()[-1] == "own own"
    assert any("uses (it imports datasets" in each for each in told["left_out"])


def test_the_mounted_library_is_loaded_once_for_all_workers(place: Place, tmp_path: pathlib.Path) -> None:
    """It lies in a zip of sources, which each worker would compile anew, and nowhere among installed packages."""
    mounted = tmp_path / "launcher.zip"
    mounted.write_bytes(archive.build(ROOT / "elastic_infra"))
    place.environ["PYTHONPATH"] = os.pathsep.join([str(place.site), str(mounted)])
    place.script.write_text(
        "import torch, sys\nfound = 'elastic_infra.training.progress' in sys.modules\n"
        "from elastic_infra.training import Progress\nprint(found, sys.modules[Progress.__module__].__file__)\n"
    )
    cold = [done.stdout for done in place.run_cold()]
    told = place.fork()

    assert told["ready"], told
    assert cold == [f"False {mounted}/elastic_infra/training/progress.py\n"] * 2
    assert place.output() == cold[0].replace("False", "True")


def test_what_imports_print_every_worker_shows(place: Place) -> None:
    """On the stream on which they print it."""
    place.installed(loud="import sys\nprint('out')\nprint('err', file=sys.stderr)\n")
    place.script.write_text("import torch, loud\nprint('script')\n")
    place.fork("torch", "loud")

    assert [place.output(rank=rank) for rank in (0, 1)] == ["out\nscript\n"] * 2
    assert [place.output("stderr", rank) for rank in (0, 1)] == ["err\n"] * 2


def test_a_variable_that_an_import_rewrites_drops_nothing(place: Place) -> None:
    """Torch does so with a path that holds ``..``; every worker finds the new value, unless it has one of its own."""
    place.installed(rewrites="import os\nos.environ['FOLDER'] = os.path.normpath(os.environ.get('FOLDER', '/d'))\n")
    place.script.write_text("import torch, rewrites, os\nprint(os.environ['FOLDER'])\n")
    told = place.fork("torch", "rewrites", FOLDER="/a/../b")

    assert told["left_out"] == []
    assert place.output() == "/b\n"


@pytest.mark.slow
def test_dynamo_is_kept_where_it_rewrites_its_folder(place: Place) -> None:
    """As torch does with ``..`` in it: where the import is declared, and where it was recorded with a later one."""
    place.environ["TORCHINDUCTOR_CACHE_DIR"] = "/a/../b"
    torch = place.site / "torch"
    (torch / "_dynamo.py").write_text(
        "import os\nname = 'TORCHINDUCTOR_CACHE_DIR'\nos.environ[name] = os.path.normpath(os.environ[name])\n"
        "import torch.after\n"
    )
    (torch / "after.py").touch()
    names = "torch._dynamo", "torch.after"
    place.script.write_text(
        f"import torch, sys, os\nprint([name in sys.modules for name in {names}])\n"
        "import torch._dynamo\nprint(os.environ['TORCHINDUCTOR_CACHE_DIR'])\n"
    )
    declared = place.fork("torch", "torch._dynamo")
    first = place.output()
    for path in place.run_dir.glob("std*"):
        path.unlink()
    assert [done.stdout for done in place.run_cold()] == ["[False, False]\n/b\n"] * 2
    recorded = place.fork()

    assert [declared["left_out"], recorded["left_out"]] == [[], []]
    assert [first, place.output()] == ["[True, True]\n/b\n"] * 2


@pytest.mark.parametrize("given", [pytest.param("", marks=pytest.mark.slow), "narenas:1"])
def test_a_background_thread_is_switched_off_by_its_own_variable(place: Place, given: str) -> None:
    """As pyarrow's allocator has one: the import is shared, and the worker's variable is as the user gave it."""
    place.installed(
        allocates="import os, threading\nSEEN = os.environ.get('JE_ARROW_MALLOC_CONF', '')\n"
        "if 'background_thread:false' not in SEEN.split(','):\n"
        "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    place.script.write_text(
        "import torch, os, sys\nprint('allocates' in sys.modules)\nimport allocates\n"
        "print(allocates.SEEN, os.environ.get('JE_ARROW_MALLOC_CONF', ''))\n"
    )
    told = place.fork("torch", "allocates", **({"JE_ARROW_MALLOC_CONF": given} if given else {}))

    assert told["left_out"] == []
    seen = ",".join(filter(None, [given, "background_thread:false"]))
    assert place.output().splitlines() == ["True", f"{seen} {given}"]


def test_a_forked_program_cannot_tell(place: Place) -> None:
    """Its builtins are the module, its path is its own, and a traceback begins in it."""
    place.script.write_text(
        "import torch, sys, types\nassert isinstance(__builtins__, types.ModuleType)\n"
        "print(sys.path[0])\nraise ValueError\n"
    )
    told = place.fork("torch")
    lines = place.output("stderr").splitlines()

    assert told["codes"] == [1, 1]
    assert place.output() == f"{place.program}\n"
    assert str(place.script) in lines[1], lines


@pytest.mark.parametrize("freezes", [False, True], ids=["", "frozen"])
def test_a_planned_stop_closes_what_was_opened_before_the_fork_and_after(place: Place, freezes: bool) -> None:
    """Only the objects made since the fork are looked through, and those that the program has frozen."""
    opened, own = place.program / "opened", place.program / "own"
    place.installed(
        opens=f"FILE = open({str(opened)!r}, 'a')\n"
        "class Owned:\n    def __del__(self):\n        print('taken apart')\n"
        "Owned.__module__ = 'torch'\nOWNED = Owned()\n"
    )
    place.script.write_text(
        f"import torch, opens, gc\nfrom elastic_infra.training import Progress\nassert Progress().step(1)\n"
        f"file = open({str(own)!r}, 'a')\n"
        "for each in (opens.FILE, file):\n    each.write('kept\\n')\n"
        f"if {freezes}:\n    gc.freeze()\nprint('done')\n"
    )
    memory = progress.Memory.create(str(place.run_dir / "memory"), 1)
    memory.set_stop(1, agreed=True)
    told = place.fork("torch", "opens", **memory.variable(0))
    memory.close()

    assert told["codes"] == [0, 0], place.output("stderr")
    assert [place.output(rank=rank) for rank in (0, 1)] == ["done\n"] * 2
    assert (opened.read_text(), own.read_text()) == ("kept\n" * 2, "kept\n" * 2)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 has PYTHONSAFEPATH")
def test_a_safe_path_is_left_alone(place: Place) -> None:
    """With PYTHONSAFEPATH the first entry of PYTHONPATH stays, and the script's folder is not on the path."""
    place.environ["PYTHONSAFEPATH"] = "1"
    place.script.write_text("import torch, sys\nprint(sys.path[0])\n")
    usual = subprocess.run(
        [sys.executable, str(place.script)], env=place.environ, capture_output=True, text=True, check=True
    ).stdout
    assert [done.stdout for done in place.run_cold()] == [usual, usual]
    place.fork("torch")

    assert place.output() == usual == f"{place.site}\n"


def test_bytecode_is_forked(place: Place) -> None:
    """A compiled program runs as its source would."""
    place.script.write_text("import torch\nprint(__name__)\n")
    source, place.script = place.script, place.program / "train.pyc"
    py_compile.compile(str(source), str(place.script), doraise=True)
    told = place.fork("torch")

    assert told["codes"] == [0, 0], place.output("stderr")
    assert place.output() == "__main__\n"


def test_a_program_without_torch_is_forked_where_there_is_none(place: Place) -> None:
    """What only torch needs is left out."""
    shutil.rmtree(place.site / "torch")
    place.environ["PYTHONPATH"] = str(ROOT)
    blocker = place.program / "torch.py"
    blocker.write_text("raise ImportError\n")  # stands in the way of the environment's own torch
    place.script.write_text("print('trained')\n")
    told = place.fork()

    assert told["codes"] == [0, 0], place.output("stderr")


MODULES = {
    "reads_mode": "import os\nSEEN = os.environ.get('MODE')\n",
    "reads_rank": "import os\nSEEN = os.environ.get('RANK')\nclass RankWarning(Warning):\n    pass\n",
    "walks": "import os\nSEEN = sorted(each for each in os.environ.items() if each[0].startswith('MOD'))\n",
    "keeps": "import os\nKEPT = dict(os.environ)\nSEEN = KEPT.get('RANK'), KEPT.get('MODE')\n",
    "reads_path": "import sys\nSEEN = 'extra' in sys.path\n",
    "reads_filters": "import warnings\nSEEN = warnings.filters[0][0]\n",
    "imports_others": "import reads_rank, reads_mode\nSEEN = reads_rank.SEEN, reads_mode.SEEN\n",
    "imports_namesake": "import namesake\nSEEN = namesake.SEEN\n",
    "namesake": "SEEN = 'installed'\n",
    "sets": "import os\nos.environ['ADDED'] = 'by an import'\nSEEN = True\n",
    "starts_a_thread": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    "SEEN = threading.active_count()\n",
}
OWN = {"own": "import reads_path, reads_mode\nSEEN = reads_path.SEEN, reads_mode.SEEN\n", "namesake": "SEEN = 'own'\n"}
STATEMENTS = [
    "import torch",
    "os.environ['MODE'] = 'fast'",
    "os.environ.pop('MODE', None)",
    "os.environ['ADDED'] = 'by the program'",
    "os.environ['MODE'] = os.environ['RANK']",
    "sys.path.append('extra')",
    "warnings.simplefilter('ignore')",
    "import reads_rank; warnings.simplefilter('once', reads_rank.RankWarning)",
    *(f"import {name}" for name in {**MODULES, **OWN}),
    *(f"(lambda: __import__({name!r}))()" for name in ("reads_mode", "imports_others", "namesake")),
]
SAYS = f"""
seen = {{name: sys.modules[name].SEEN for name in {sorted({**MODULES, **OWN})} if name in sys.modules}}
print(seen, os.environ.get("ADDED"), os.environ.get("MODE"), sys.path)
"""


@hypothesis.settings(max_examples=12, deadline=None)
@hypothesis.given(
    strategies.lists(strategies.sampled_from(STATEMENTS), min_size=7, max_size=12, unique=True), strategies.booleans()
)
def test_whatever_a_program_does_its_imports_see_it(statements: list[str], is_read_first: bool) -> None:
    """Forked in the first generation, and after a generation that recorded, all is as in a cold start."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(pathlib.Path(folder))
        place.installed(**MODULES)
        for name, source in OWN.items():
            (place.program / f"{name}.py").write_text(source)
        first = ["import torch"] if is_read_first else []
        lines = ["import os, sys, warnings", *first, *statements, "import torch"]
        place.script.write_text("\n".join(lines) + SAYS)
        declared = import_scan.declared(Entrypoint("script", str(place.script)), folder).names
        place.fork("torch", *declared)
        first_generation = [place.output(rank=rank) for rank in (0, 1)]
        cold = [done.stdout for done in place.run_cold()]
        for path in place.run_dir.glob("std*"):
            path.unlink()
        told = place.fork(*declared)

        assert first_generation == cold
        assert not told["ready"] or [place.output(rank=rank) for rank in (0, 1)] == cold


def test_a_filter_keeps_its_place_where_its_category_is_not_loaded() -> None:
    """No warning of that category can be raised then."""
    kept, other = fork_server.read_filters(
        [
            ["ignore", "a", "no_such_module", "SomeWarning", "b", 3],
            ["error", None, "builtins", "UserWarning", None, 0],
        ]
    )

    assert kept == ("ignore", "a", fork_server.NotLoadedWarning, "b", 3)
    assert other == ("error", None, UserWarning, None, 0)


def test_a_category_that_is_not_where_its_name_says_is_an_error() -> None:
    """The class may be there under another name, so the caller leaves the module out."""
    with pytest.raises(AttributeError):
        fork_server.read_filters([["ignore", None, "builtins", "NoSuchWarning", None, 0]])


def test_a_category_of_a_module_that_is_left_out_keeps_no_other_out(place: Place) -> None:
    """Lightning has such a filter: it reads a worker's own variable, and torch imports half of itself later."""
    place.installed(
        reads_rank="import os\nRANK = os.environ['RANK']\nclass OurWarning(UserWarning):\n    pass\n",
        heavy="import warnings\nSEEN = warnings.filters[0][0]\n",
    )
    place.script.write_text(
        "import torch, sys, warnings\nprint('heavy' in sys.modules)\nimport reads_rank\n"
        "warnings.simplefilter('error', reads_rank.OurWarning)\nimport heavy\nprint(reads_rank.RANK, heavy.SEEN)\n"
        "try:\n    warnings.warn('told', reads_rank.OurWarning)\nexcept reads_rank.OurWarning:\n    print('error')\n"
    )
    cold = [done.stdout for done in place.run_cold()]
    told = place.fork()

    assert told["ready"], told
    assert cold == [f"False\n{rank} error\nerror\n" for rank in (0, 1)]
    assert [place.output(rank=rank) for rank in (0, 1)] == [text.replace("False", "True") for text in cold]


def test_filters_travel_whole() -> None:
    """Every form that the standard library makes is read back as it was."""
    import re
    import warnings

    filters = [
        ("ignore", re.compile("a.*", re.IGNORECASE), UserWarning, None, 0),
        ("error", None, DeprecationWarning, "module", 7),
        *warnings.filters,
    ]

    assert fork_server.read_filters(json.loads(json.dumps(bootstrap.written(filters)))) == filters


def test_installed_is_what_lies_under_site_packages() -> None:
    """Not the standard library, and not a tree beside it."""
    assert fork_server.is_installed(os.path.join(sysconfig.get_path("purelib"), "numpy", "__init__.py"))
    assert not fork_server.is_installed(os.__file__)


def test_a_mapped_file_may_have_spaces_in_its_path() -> None:
    """Each file once, by its own name; memory of no file, and other files, are left out."""
    maps = [
        "7f00-7f01 r-xp 00000000 08:01 42                         /home/a b/.venv/libopenblas64_.so\n",
        "7f01-7f02 rw-p 00001000 08:01 42                         /home/a b/.venv/libopenblas64_.so\n",
        "7f02-7f03 rw-p 00000000 00:00 0 \n",
        "7f03-7f04 rw-p 00000000 00:00 0                          [heap]\n",
        "7f04-7f05 r-xp 00000000 08:01 43                         /opt/openblas/libother.so\n",
    ]

    assert fork_server.mapped(maps, "openblas") == {"/home/a b/.venv/libopenblas64_.so"}
