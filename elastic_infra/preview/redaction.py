"""The form of a value in a preview: enough for a review, and never a possible secret.

The value of a variable is never shown, only that it changed. Elsewhere a value is hidden when its name, or the option
before it, sounds like a secret; inside any text so are credentials of an address,
well-known forms of tokens, values of such names, and what follows the host of a webhook.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import BaseModel

from elastic_infra.config import EnvVar
from elastic_infra.config.workdir import Files, amount, told
from elastic_infra.preview.model import Shown

HIDDEN: Final = "(hidden)"
MAX_SHOWN: Final = 300
"""Longer texts are cut; a reviewer sees them in the file."""

_SPEAKS_OF_SECRET: Final = re.compile(
    r"(?i)token|secret|passw|passphrase|credential|private|(api|access|auth|encryption|signing)[-_.]?key|authorization"
)
_NAMES_A_SECRET: Final = re.compile(r"(?i)(^|[.\]_])(image_pull_secrets|imagePullSecrets|secret|secretName)(\[|$|\.)")
"""Fields that hold the name of a Secret, which is none."""

_VARIABLE_VALUE: Final = re.compile(r"\.env\[[^\]]*\]\.value$")

PULUMI_SECRET: Final = "4dabf18193072939515e22adb298388d"  # noqa: S105 - marks a secret, is none
"""Key by which Pulumi marks a secret in JSON: https://github.com/pulumi/pulumi/blob/v3.230.0/sdk/go/common/resource/sig/sig.go"""

_IN_ADDRESS: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_TOKENS: Final = re.compile(
    r"\b(?i:bearer)\s+[\w.~+/=-]{6,}|\b(?i:basic)\s+(?=\S*[A-Z0-9=])[\w.~+/=-]{6,}"
    r"|\b(?:hf_|sk_live_|rk_live_|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|npm_|pypi-|pul-|dop_v1_)[\w.-]{6,}"
    r"|(?<![\w./-])[sp]k-[\w.-]{6,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bAIza[\w-]{30,}"
    r"|\beyJ[\w-]+\.[\w-]+\.[\w-]+"
)
"""Tokens with well-known prefixes: https://docs.github.com/en/code-security/secret-scanning"""

_WEBHOOK: Final = re.compile(
    r"(?i)(https?://(?:[^\s/\"']*(?:hooks?\.|webhook)[^\s/\"']*|[^\s/\"']+(?=/\S*hooks?/)))/[^\s\"']+"
)
_NAMED: Final = re.compile(
    r"""(?P<name>["']?[\w.-]*(?:token|secret|passw|passphrase|credential|(?:api|access|auth|encryption|signing|private)"""
    r"""[-_.]?key|authorization|signature)[\w.-]*["']?\s*[:=]\s*)(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&"'})]+)""",
    re.IGNORECASE,
)
"""A name that sounds like a secret, and its value: in JSON, YAML, a query, a header or a shell's assignment."""

_OPTION: Final = re.compile(r"(--?[\w.-]+|[\w.-]+)=(.*)", re.DOTALL)


def redacted(path: str, value: object) -> Shown:
    """The value at a path as a preview shows it.

    Args:
        path: where it stands, such as ``annotations['example.com/token']``.
        value: a part of a config or a manifest.
    """
    if isinstance(value, EnvVar | Files | bytes):
        return _whole(value)
    if _is_secret(path) or _VARIABLE_VALUE.search(path) or (isinstance(value, Mapping) and PULUMI_SECRET in value):
        return None if value is None else HIDDEN
    if isinstance(value, BaseModel):
        return redacted(path, dict(value))
    if isinstance(value, Mapping):
        return _mapping(path, value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _arguments(path, value)
    return value if value is None or isinstance(value, bool | int | float) else _text(str(value))


def _whole(value: EnvVar | Files | bytes) -> Shown:
    """What is shown of a variable, of files, and of one file's content."""
    if isinstance(value, EnvVar):
        return _variable(value.model_dump(exclude_none=True, warnings=False))
    return told(value) if isinstance(value, bytes) else amount(value)


def _is_secret(path: str) -> bool:
    return bool(_SPEAKS_OF_SECRET.search(path)) and not _NAMES_A_SECRET.search(path)


def _variable(fields: Mapping[str, object]) -> Shown:
    """References are names, and told; values are not."""
    if "value" in fields:
        return HIDDEN
    source, name = next((key, fields[key]) for key in ("secret", "configmap", "field") if key in fields)
    return f"{source} {name}, key {fields['key']}" if "key" in fields else f"{source} {name}"


def _mapping(path: str, value: Mapping[object, object]) -> Shown:
    if "name" in value and ("value" in value or "valueFrom" in value):  # a variable of a manifest
        return {"name": str(value["name"]), "value": HIDDEN}
    return {
        str(name): redacted(f"{path}.{name}", each)
        for name, each in value.items()
        if each is not None and each not in ((), {})
    }


def _arguments(path: str, values: Sequence[object]) -> Shown:
    hide, result = False, list[Shown]()
    for value in values:
        text = redacted(path, value)
        result.append(HIDDEN if hide else text)
        hide = isinstance(value, str) and value.startswith("-") and "=" not in value and _is_secret(value)
    return result


def _text(text: str) -> str:
    option = _OPTION.fullmatch(text)
    if option and _is_secret(option[1]):
        return f"{option[1]}={HIDDEN}"
    clean = without_secrets(text)
    return clean if len(clean) <= MAX_SHOWN else f"{clean[:MAX_SHOWN]}... ({len(clean)} characters)"


def without_secrets(text: str) -> str:
    """A text from a job or a program, with possible secrets hidden."""
    hidden = _WEBHOOK.sub(rf"\1/{HIDDEN}", _IN_ADDRESS.sub(HIDDEN, text))
    return _NAMED.sub(rf"\g<name>{HIDDEN}", _TOKENS.sub(HIDDEN, hidden))
