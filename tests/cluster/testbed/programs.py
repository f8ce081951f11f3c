"""Finds the programs of the testbed: the repository's own builds, and Debian's packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.testbed.layout import SYSTEM_PATH
from tools import build, modules, run

BUILT = {
    "coredns": "coredns",
    "kube-apiserver": "kube-apiserver",
    "kube-controller-manager": "kube-controller-manager",
    "kube-scheduler": "kube-scheduler",
    "kubelet": "kubelet",
    "training-operator": "training-operator.v1",
}
"""Name here to the name of the program that `make tools` builds."""
PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "etcd": "etcd-server",
    "ip": "iproute2",
    "mount": "mount",
    "openssl": "openssl",
    "runc": "runc",
    "unshare": "util-linux",
}
"""Program to the Debian package that holds it."""
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


class MissingProgramError(Exception):
    """Something that the testbed runs is not installed; the message says how to get it."""


def find(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Name to path of everything that the testbed starts; raises `MissingProgramError`."""
    path = f"{environ.get('PATH', '')}:{SYSTEM_PATH}"
    packaged = {name: shutil.which(name, path=path) for name in PACKAGES}
    cni = next((str(folder) for folder in CNI_FOLDERS if (folder / "bridge").exists()), None)
    missing = {PACKAGES[name] for name, place in packaged.items() if place is None}
    if missing or cni is None:
        names = " ".join(sorted(missing | (set() if cni else {"containernetworking-plugins"})))
        message = f"Not installed: {names}. Run `apt-get install {names}`."
        raise MissingProgramError(message)
    return {"cni": cni, **{name: str(place) for name, place in packaged.items()}, **_built(environ)}


def built(program: str, environ: Mapping[str, str] = os.environ) -> str:
    """Where `make tools` put a program; raises `MissingProgramError` when it has not run."""
    cache = modules.cache_folder(environ, Path.home())
    try:
        return str(build.program_path(program, cache, build.go_program()))
    except run.SetupError as error:
        raise MissingProgramError(str(error)) from error


def operator_crd() -> str:
    """The file that defines PyTorchJob, from the operator's own module."""
    try:
        return str(build.crd_path(build.go_program()))
    except run.SetupError as error:
        raise MissingProgramError(str(error)) from error


def _built(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: built(program, environ) for name, program in BUILT.items()}
