"""The testbed's container images, made without a registry: empty folders, filled by mounts of this machine.

Every container gets the machine's `/usr` and the tests' Python read-only through the runtime's base
specification, so an image needs no content, and the pods run the same torch as the tests.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tests.cluster.testbed.component import run
from tests.cluster.testbed.layout import IMAGES, PAUSE_IMAGE, Testbed

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
FOLDERS = ("usr", "etc", "dev", "proc", "sys", "run", "root", "home", "var", "mnt", "opt", "workspace")
LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
"""Only root has a name: every other user of a pod has no passwd entry."""
PAUSE_COMMAND = ("/usr/bin/sleep", "infinity")


def layer(folders: Iterable[str], pause: Mapping[str, bytes]) -> bytes:
    """The image's only layer: a root folder with places for the mounts, `folders` and the `pause` files."""
    files = {**{name: text.encode() for name, text in FILES.items()}, **{_real(n): d for n, d in pause.items()}}
    places = [*FOLDERS, *(f.lstrip("/") for f in folders), *(str(PurePosixPath(f).parent) for f in files)]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _with_parents(places):
            archive.addfile(_entry(name, tarfile.DIRTYPE, 0o755))
        archive.addfile(_entry("tmp", tarfile.DIRTYPE, 0o1777))
        for name, target in LINKS.items():
            link = _entry(name, tarfile.SYMTYPE, 0o777)
            link.linkname = target
            archive.addfile(link)
        for name, data in files.items():
            _add_file(archive, name, data, 0o755)
    return buffer.getvalue()


def archive(python: Sequence[str], pause: Mapping[str, bytes]) -> bytes:
    """A docker archive with the pause image and the torch image under all its names.

    Args:
        python: folders of the interpreter and of its packages, the one with the programs last.
        pause: path to content of what `PAUSE_COMMAND` needs to run without any mount.
    """
    content = layer(python, pause)
    path = ":".join([f"{python[-1]}/bin", "/usr/local/bin", "/usr/bin", "/bin"])
    manifest = [
        {"Config": "pause.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]},
        {"Config": "torch.json", "RepoTags": list(IMAGES), "Layers": ["layer.tar"]},
    ]
    members = {
        "layer.tar": content,
        "pause.json": _config(content, {"Cmd": list(PAUSE_COMMAND)}),
        "torch.json": _config(content, {"Env": [f"PATH={path}"], "WorkingDir": "/workspace"}),
        "manifest.json": json.dumps(manifest).encode(),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as target:
        for name, data in members.items():
            _add_file(target, name, data, 0o644)
    return buffer.getvalue()


def with_mounts(spec: dict[str, Any], folders: Sequence[str]) -> dict[str, Any]:
    """The runtime's base specification with this machine's `folders` mounted read-only at the same place."""
    binds = [
        {"destination": f, "type": "bind", "source": f, "options": ["rbind", "ro", "nosuid", "nodev"]} for f in folders
    ]
    return {**spec, "mounts": [*spec["mounts"], *binds]}


def write_base_spec(testbed: Testbed) -> None:
    """Asks containerd for its specification and adds the mounts; needs no running containerd."""
    spec = json.loads(run(testbed.program("ctr"), "oci", "spec"))
    testbed.path("base-spec.json").write_text(json.dumps(with_mounts(spec, ["/usr", *testbed.python])))


def pause_files() -> dict[str, bytes]:
    """The program that holds a pod's namespaces and its libraries: containerd gives this container no mounts."""
    program = PAUSE_COMMAND[0]
    libraries = re.findall(r"(/\S+) \(0x", run("ldd", program))
    return {path: Path(path).read_bytes() for path in (program, *libraries)}


def load(testbed: Testbed) -> None:
    """Gives the running containerd the images."""
    target = testbed.path("images.tar")
    target.write_bytes(archive(testbed.python, pause_files()))
    address = str(testbed.path("containerd.sock"))
    ctr = (testbed.program("ctr"), "--address", address, "--namespace", "k8s.io")
    run(*ctr, "images", "import", "--snapshotter", "native", str(target))


def _with_parents(names: Iterable[str]) -> list[str]:
    paths = [PurePosixPath(name) for name in names]
    wanted = {str(p) for path in paths for p in (path, *path.parents)} - {".", "tmp"}
    return sorted(wanted)


def _real(path: str) -> str:
    """Where a file lies that is named through one of the links."""
    first, _, rest = path.lstrip("/").partition("/")
    return f"{LINKS.get(first, first)}/{rest}"


def _add_file(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = _entry(name, tarfile.REGTYPE, mode)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.mode = mode
    return entry


def _config(content: bytes, settings: dict[str, object]) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    document = {
        "architecture": MACHINES[platform.machine()],
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    return json.dumps(document).encode()
