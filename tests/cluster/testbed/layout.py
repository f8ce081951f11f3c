"""Where a testbed keeps things: its folder, addresses, ports and programs. Pure; it must start nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

NODE_NAME = "testbed"
NODE_ADDRESS = "10.88.0.1"
"""The bridge's own address: gateway of the pods, DNS server and the cluster node's IP in one."""
POD_NETWORK = "10.88.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The folders of packaged programs, independent of the caller's PATH."""
ETCD = "http://127.0.0.1:2379"
IMAGES = ("elastic-infra.test/torch:a", "elastic-infra.test/torch:b")
"""Two names of one image, so that a test can change a job's image."""
PAUSE_IMAGE = "elastic-infra.test/pause:1"


@dataclass(frozen=True)
class Testbed:
    """One cluster. Fixed ports are free because the testbed has its own network namespace."""

    __test__: ClassVar[bool] = False  # its name begins as pytest's classes of tests do

    root: str
    """The testbed's folder, empty before `up` and gone after `down`."""
    port: int
    """The API server's port: on loopback inside the testbed and, relayed, outside."""
    programs: Mapping[str, str]
    """Program name to path."""
    token: str
    """The administrator's bearer token."""
    python: tuple[str, ...]
    """Folders of this machine that containers see read-only at the same place: interpreter and packages."""
    operator_crd: str
    """The file with the training operator's PyTorchJob definition."""

    @property
    def kubeconfig(self) -> Path:
        """Valid inside and outside the testbed's network."""
        return self.path("kubeconfig")

    @property
    def server(self) -> str:
        """The API server's URL, the same inside and outside; its certificate names localhost."""
        return f"https://localhost:{self.port}"

    @property
    def cgroup(self) -> str:
        """The control group that holds every pod."""
        return f"elastic-infra-{hashlib.sha256(self.root.encode()).hexdigest()[:8]}"

    def path(self, *parts: str) -> Path:
        """A path in the testbed's folder."""
        return Path(self.root, *parts)

    def program(self, name: str) -> str:
        """Where a program is."""
        return self.programs[name]

    def write(self) -> None:
        """Saves the testbed for `read`; it holds the token, so only the owner may read it."""
        target = self.path("testbed.json")
        target.touch(mode=0o600)
        target.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, root: Path) -> Testbed:
        """The testbed whose folder is `root`."""
        fields = json.loads((root / "testbed.json").read_text())
        return cls(**{**fields, "python": tuple(fields["python"])})


def kubeconfig(testbed: Testbed) -> dict[str, object]:
    """The kubeconfig of an administrator of the testbed."""
    authority = str(testbed.path("apiserver", "apiserver.crt"))
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [{"name": "testbed", "cluster": {"server": testbed.server, "certificate-authority": authority}}],
        "users": [{"name": "admin", "user": {"token": testbed.token}}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "admin"}}],
    }
