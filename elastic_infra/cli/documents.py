"""Manifests as YAML text: the same bytes everywhere, and the same values to every YAML parser."""

from __future__ import annotations

import io
import re
import sys
from typing import Any, Final

import typer
import yaml

from elastic_infra.manifests import Manifest, Manifests

_AMBIGUOUS: Final = re.compile(r"[-+.]?[0-9][-+.:_0-9a-fox]*|[-+]?\.(inf|nan)|[yn]|=|<<", re.IGNORECASE)
"""Text that some parser of Kubernetes' tools reads as a number or a boolean although PyYAML does not quote it: `1e3`,
`0o7`, `y`."""


def text(manifests: Manifests, *, short: bool = False) -> str:
    """All objects as one stream of YAML documents, dependencies first.

    Args:
        short: without the launcher's archive, which no reader needs.
    """
    objects = [_without_archive(manifest) if short else manifest for _, manifest in manifests.objects()]
    dumped: str = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, explicit_start=True, allow_unicode=True, width=sys.maxsize >> 32
    )
    return dumped


def show(document: str) -> None:
    """Print YAML in UTF-8, whatever the encoding of stdout: a character that it lacks would be another value."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    typer.echo(document, nl=False)


def _without_archive(manifest: Manifest) -> Manifest:
    return {key: value for key, value in manifest.items() if key != "binaryData"}


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # chosen at run time
    """SafeDumper that repeats shared parts instead of writing anchors, and quotes what could be misread."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _string(dumper: Any, data: str) -> Any:  # noqa: ANN401 - PyYAML is untyped
    style = "|" if "\n" in data else "'" if _AMBIGUOUS.fullmatch(data) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _string)
