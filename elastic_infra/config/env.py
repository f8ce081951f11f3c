"""Environment variables of the training container."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field, model_validator

from elastic_infra.config.base import Part, Shorthand, require_one_of
from elastic_infra.config.values import EnvName, InputKey, InputName, InputText, is_label_key, is_late

# https://kubernetes.io/docs/concepts/workloads/pods/downward-api/#available-fields
_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels['KEY']",
    "metadata.annotations['KEY']",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_OF_KEY: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def _is_field(path: str) -> str:
    if path in _FIELDS:
        return path
    match = _OF_KEY.fullmatch(path)
    if match and is_label_key(match[2] if match[1] == "labels" else match[2].lower()):
        return path
    message = f"must be one of {', '.join(_FIELDS)}."
    raise ValueError(message)


class EnvVar(Part):
    """One variable: a value, or a reference that the kubelet resolves (so that no secret enters the manifest)."""

    value: Annotated[InputText | None, Field(repr=False)] = None
    """The value as text. A plain string or number in place of the mapping means this."""

    secret: InputName | None = None
    """Name of a Secret in the job's namespace; needs `key`."""

    configmap: InputName | None = None
    """Name of a ConfigMap in the job's namespace; needs `key`."""

    key: InputKey | None = None
    """Key inside the Secret or ConfigMap."""

    field: Annotated[str, AfterValidator(_is_field)] | None = None
    """Downward-API path such as `status.podIP`."""

    @model_validator(mode="after")
    def _one_source(self) -> EnvVar:
        require_one_of(self, "value", "secret", "configmap", "field")
        if (self.key is not None) != (self.secret is not None or self.configmap is not None):
            message = "key goes with secret or configmap, and these two need it."
            raise ValueError(message)
        return self


def _expand(value: object) -> object:
    if isinstance(value, bool):
        message = "write true or false in quotes: a variable is text, and programs differ in how they spell it."
        raise ValueError(message)  # noqa: TRY004 - pydantic reports ValueError as a fault
    if isinstance(value, int | float):
        return {"value": str(value)}
    return {"value": value} if isinstance(value, str) or is_late(value) else value


Env = dict[EnvName, Annotated[EnvVar, Shorthand(_expand, {"type": ["string", "number"]})]]
"""Name to variable, in the user's order."""

RESERVED: Final = frozenset(
    {
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "POD_IP",
        "RANK",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "WORLD_SIZE",
    }
)
TEE: Final = "PET_TEE"
"""The launcher's `--tee`, which nothing else sets: with it each line of a node's log names its worker."""
RESERVED_PREFIXES: Final = ("PET_", "TORCHELASTIC_", "ELASTIC_INFRA_")


def reserved(name: str) -> bool:
    """Whether the operator, torch or the launcher sets this variable, so that a user's value would be lost."""
    return name in RESERVED or (name.startswith(RESERVED_PREFIXES) and name != TEE)
