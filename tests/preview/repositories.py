"""Small git repositories and the command, as a CI job has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LLM = 'image: team/llm:1\nscript: train.py\nelastic: {nnodes: "2:4"}\nresources: {memory: 64Gi}\n'
EVAL = "image: team/eval:1\nscript: eval.py\nresources: {memory: 8Gi}\n"
IDENTITY = {f"GIT_{role}_{what}": "dev@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, untouched by the machine's own settings."""
    environ = {**os.environ, **IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=True)
    return done.stdout


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files, with their folders."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def commit(folder: Path, files: Mapping[str, str | bytes], message: str = "Change jobs") -> None:
    """Write files and commit everything."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch=main")
    write(folder, files)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)


def run(folder: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program in a folder."""
    command = [sys.executable, "-c", "from elastic_infra.cli import main; main()", *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **(environ or {})}, capture_output=True, text=True, check=False
    )


def diff(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """`diff --format json`: exit code, document and what went to stderr."""
    done = run(folder, "diff", "--format", "json", *arguments)
    return done.returncode, json.loads(done.stdout), done.stderr


def consequences(document: Mapping[str, Any]) -> dict[str, str]:
    """The consequence of each job in a document, by the job's name."""
    return {job["name"]: job["consequence"] for job in document["jobs"]}
