"""Data and models that are there before the training starts."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from elastic_infra.config.base import Part
from elastic_infra.config.env import Env
from elastic_infra.config.values import AbsolutePath, DnsLabel, InputImage, Text

Kind = Literal["huggingface", "s3", "git", "command"]

_SOURCES: Final = {
    "huggingface": (r"[\w.-]+(/[\w.-]+)?", "a repository such as 'org/model'"),
    "s3": (r"s3://[^\s/]+(/\S*)?", "an address such as 's3://bucket/folder'"),
    "git": (
        r"(?!-)(?!\w+://[^/@\s]*:[^/@\s]*@)(?!(?i:https?)://[^/\s]*@)\S+",
        "an address without a password and, with https, without a name or a token: these belong into a Secret",
    ),
}
"""What the source of a kind looks like."""


class Initializer(Part):
    """One init container that fills a folder before the training starts."""

    name: DnsLabel
    """Name of the init container, and of the folder's volume where the folder is in no mount."""

    kind: Kind
    """Where from. `huggingface` needs the package `huggingface_hub` in the image; `s3` the program `aws`, or the
    package `s3fs`; `git` the program. `command` runs `command`."""

    source: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """What to fetch: `org/model` of the Hugging Face Hub, `s3://bucket/folder`, or the address of a git repository."""

    revision: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[\w./-]+$")] | None = None
    """Commit, tag or branch of `huggingface` and `git`. What is there already is not fetched again because a branch has
    moved, so name a commit."""

    repository: Literal["model", "dataset", "space"] = "model"
    """Kind of repository of the Hugging Face Hub."""

    command: tuple[Text, ...] = ()
    """Program of the kind `command`: it fills its working directory."""

    path: AbsolutePath
    """The folder, which the training sees as well. Inside a mount of `storage` it is a cache: one pod fills it, the
    others wait, and what is there stays for the next pods and jobs. Elsewhere each pod has a folder of its own."""

    image: InputImage | None = None
    """Image with python3 and what the kind needs; the job's by default."""

    env: Env = {}
    """Variables of the init container, such as `HF_TOKEN: {secret: hf, key: token}`."""

    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """How often to try, with pauses from 2 s that double, up to a minute."""

    @property
    def volume(self) -> str:
        """Name of the volume of a folder that lies in no mount."""
        return f"init-{self.name}"

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Initializer:
        if bool(self.command) != (self.kind == "command"):
            message = "command goes with kind 'command', which needs one."
            raise ValueError(message)
        if (self.source is None) != (self.kind == "command"):
            message = "source goes with every kind but 'command', and these need one."
            raise ValueError(message)
        if self.revision is not None and self.kind not in {"huggingface", "git"}:
            message = "revision goes with kinds 'huggingface' and 'git'."
            raise ValueError(message)
        if self.repository != "model" and self.kind != "huggingface":
            message = "repository goes with kind 'huggingface'."
            raise ValueError(message)
        if self.source is not None and not re.fullmatch(_SOURCES[self.kind][0], self.source):
            message = f"source must be {_SOURCES[self.kind][1]}."
            raise ValueError(message)
        return self
