"""The check of the mounted launcher, run by a real Python: the right one starts as without it, and no other does."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from elastic_infra.config.values import KnownLater, digest_in
from elastic_infra.launcher import exit_codes
from elastic_infra.manifests import archive, launcher, render, verify
from elastic_infra.manifests.identity import without_launcher
from elastic_infra.manifests.render import lasting
from tests import jobs

VERIFIED: dict[str, Any] = {"launcher": {"verify": True}}
EVERYWHERE: dict[str, Any] = {
    "launcher": {"verify": True, "kubernetes_events": True},
    "health_check": True,
    "rendezvous": {"host": "dedicated"},
}
"""All containers that run the launcher: node, health check, store, driver."""
DIGEST = "0123456789abcdef" * 4

TRACE = "open('trace', 'a').write('ran')"
REPORT = """
import json, os, sys
own = os.environ.get("PYTHONPATH")
print(json.dumps([__name__, sys.argv, sys.path[0], sys.flags, own, sys.stdout.write_through, os.getpid()]))
sys.exit(int(os.environ.get("CODE", "0")))
"""
WAIT = "import time; print('up', flush=True); time.sleep(60)"


IMPORTED = (
    "sitecustomize",
    "usercustomize",
    "hashlib",
    "os",
    "elastic_infra/__init__",
    "elastic_infra/launcher/__init__",
)
"""What Python or a module of the launcher would import by itself."""
MODULES = ("elastic_infra.launcher.store", "elastic_infra.launcher.driver", "elastic_infra.launcher.health")


def zipped(folder: Path, program: str, imported: str = "") -> Path:
    """An archive with one program in each file that a container of a job runs, and another in those it imports."""
    packages = [each.replace(".", "/") for each in MODULES]
    files = {
        **{f"{each}.py": imported for each in (*IMPORTED, *(f"{each}/__init__" for each in packages))},
        **{f"{each}.py": program for each in ("__main__", *(f"{each}/__main__" for each in packages))},
    }
    if not imported:  # a module of the standard library that is empty would be missed
        files = {path: text for path, text in files.items() if path not in {"hashlib.py", "os.py"}}
    path = folder / "launcher.zip"
    path.write_bytes(archive.packed({name: text.encode() for name, text in files.items()}))
    return path


def digest_of(path: Path) -> str:
    """What a ConfigMap with these bytes would have in its name."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checked(path: Path, digest: str, *arguments: str) -> list[str]:
    """The command of a container, on this machine."""
    made = launcher.python(jobs.job(**VERIFIED), f"a-{digest}", *arguments)
    return [sys.executable, *(str(path) if word == launcher.MOUNTED else str(word) for word in made[1:])]


def run(command: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run it as in a container, with the archive on the path of modules."""
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder / "launcher.zip"), **environ}
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, timeout=60, check=False)


def containers(config: Any, name: str | None = None) -> list[dict[str, Any]]:
    """Every container of every pod."""
    objects: dict[str, Any] = dict(render(jobs.NAME, config, name).objects())
    specs = [template["spec"] for template in jobs.templates(objects)]
    return [each for spec in specs for kind in ("initContainers", "containers") for each in spec.get(kind, [])]


def test_the_launcher_starts_behind_the_check(tmp_path: Path) -> None:
    """The real archive, by the command of the training container, and by that of the store."""
    (tmp_path / "launcher.zip").write_bytes(launcher.archive())
    config = jobs.elastic(**EVERYWHERE)
    found = {each["name"]: each["command"] for each in containers(config)}
    commands = {
        name: [sys.executable, *(word.replace(launcher.MOUNTED, str(tmp_path / "launcher.zip")) for word in words[1:])]
        for name, words in found.items()
    }
    done = {name: run([*command, "--help"], tmp_path) for name, command in commands.items()}

    assert {name: (each.returncode, each.stderr) for name, each in done.items()} == dict.fromkeys(
        ("health", "pytorch", "store", "driver"), (0, "")
    )
    assert "--nnodes" in done["pytorch"].stdout
    assert "--port" in done["store"].stdout


@pytest.mark.parametrize("module", ["", *MODULES])
def test_a_changed_byte_starts_nothing(tmp_path: Path, module: str) -> None:
    """No file of the archive leaves its trace, which Python would import by itself; with the right bytes it does."""
    path = zipped(tmp_path, TRACE, TRACE)
    digest, content = digest_of(path), path.read_bytes()
    command = checked(path, digest, *(("-m", module) if module else (str(path),)))
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # in the length of the comment: Python reads on
    refused = run(command, tmp_path)

    assert not (tmp_path / "trace").exists()
    assert (refused.returncode, refused.stdout) == (exit_codes.USAGE, "")
    (line,) = refused.stderr.splitlines()
    assert f"{digest_of(path)} and not {digest}" in line
    assert "find out by whom" in line

    path.write_bytes(content)
    run(command, tmp_path)
    assert (tmp_path / "trace").exists()


def test_an_archive_that_is_missing_is_named(tmp_path: Path) -> None:
    """In one line, without a traceback."""
    done = run(checked(tmp_path / "launcher.zip", DIGEST, "-m", "x"), tmp_path)

    assert done.returncode == exit_codes.USAGE
    assert done.stderr == (
        f"launcher.verify: {tmp_path}/launcher.zip cannot be read (No such file or directory). "
        "Look at the pod's volume `launcher` and its ConfigMap.\n"
    )


@pytest.mark.parametrize("code", [0, 1, 93, 200])
@pytest.mark.parametrize("module", ["", "elastic_infra.launcher.store"])
def test_the_launcher_finds_all_as_without_the_check(tmp_path: Path, module: str, code: int) -> None:
    """Arguments, name, path, flags, variables, buffering and exit code are those of the plain command."""
    path = zipped(tmp_path, REPORT)
    arguments = [*(("-m", module) if module else (str(path),)), "--port", "1", "", "a b"]
    environ = {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "7", "CODE": str(code)}
    plain = run([sys.executable, *arguments], tmp_path, **environ)
    behind = run(checked(path, digest_of(path), *arguments), tmp_path, **environ)
    told = [json.loads(each.stdout)[:-1] for each in (plain, behind)]

    assert told[0] == told[1]
    assert told[0][0] == "__main__"
    assert (plain.returncode, behind.returncode, behind.stderr) == (code, code, "")


def test_the_process_is_the_same_and_gets_the_signals(tmp_path: Path) -> None:
    """The kubelet's SIGTERM goes to the container's first process."""
    path = zipped(tmp_path, WAIT)
    with subprocess.Popen(checked(path, digest_of(path), str(path)), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        command = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)

    assert (said, command[1:-1], code) == ("up\n", [str(path)], -signal.SIGTERM)


def test_no_target_retries_what_was_refused() -> None:
    """A Job by its policy, for the health check too, where that comes first; the operator up to 127."""
    rules = jobs.objects(jobs.indexed(**VERIFIED, health_check=True))["workload"]["spec"]["podFailurePolicy"]["rules"]
    failing = {each["onExitCodes"]["containerName"]: each["onExitCodes"]["values"] for each in rules[1:]}

    assert verify.USAGE == exit_codes.USAGE <= 127
    assert failing == {"pytorch": list(exit_codes.PERMANENT), "health": [exit_codes.USAGE]}
    assert jobs.elastic(**VERIFIED).restart_policy == "ExitCode"


@pytest.mark.parametrize("make", [jobs.job, jobs.elastic, jobs.indexed, jobs.train_job])
def test_every_container_that_runs_the_launcher_checks_it(make: Any) -> None:
    """On every target, by the digest in the name of what is mounted; and none does without the option."""
    given = {"elastic": {"rdzv_id": "run"}, **(VERIFIED if make is jobs.job else EVERYWHERE), "health_check": True}
    config, plain = make(**given), make(**{**given, "launcher": {**given["launcher"], "verify": False}})
    found, pinned = containers(config), containers(config, f"a-{DIGEST}")

    assert len(found) == (2 if make is jobs.job else 4)
    assert {each["command"][5] for each in found} == {launcher.whole_digest()}
    assert {each["command"][5] for each in pinned} == {DIGEST}
    assert [each["command"][4] for each in found] == [launcher.check_program()] * len(found)
    assert [each["command"][0:1] + each["command"][7:] for each in found] == [
        each["command"] for each in containers(plain)
    ]


def test_the_archive_is_mounted_as_a_file() -> None:
    """Which no update of the ConfigMap reaches while the container lives; a folder would follow."""
    mounts = [mount for each in containers(jobs.elastic(**EVERYWHERE)) for mount in each["volumeMounts"]]

    assert [each for each in mounts if each["name"] == "launcher"] == [
        {"name": "launcher", "mountPath": launcher.MOUNTED, "subPath": "launcher.zip", "readOnly": True}
    ] * 4


def test_the_config_map_is_named_by_the_whole_digest() -> None:
    """With the longest name of a job it is far from Kubernetes' limit; without the option all is as before."""
    objects = jobs.objects(jobs.job(**VERIFIED), "a" * 63)
    name = objects["launcher"]["metadata"]["name"]
    (volume,) = [each for each in objects["workload"]["spec"]["template"]["spec"]["volumes"] if "configMap" in each]

    assert name == f"{'a' * 63}-launcher-{hashlib.sha256(launcher.archive()).hexdigest()}"
    assert (digest_in(name), volume["configMap"]["name"]) == (launcher.whole_digest(), name)
    assert len(name) <= 253
    assert jobs.objects(jobs.job())["launcher"]["metadata"]["name"] == f"job-launcher-{launcher.whole_digest()[:8]}"


@pytest.mark.parametrize("make", [jobs.job, jobs.elastic, jobs.indexed, jobs.train_job])
def test_a_newer_launcher_alone_is_no_other_workload(make: Any) -> None:
    """The digest in the commands is no part of the run's id; turning the option on is."""
    config, other = make(**VERIFIED), f"b-{DIGEST[::-1]}"
    runs = [run_of_workload(config, name) for name in (f"a-{DIGEST}", other)]

    assert runs[0] == runs[1] != run_of_workload(make(), other)


def run_of_workload(config: Any, name: str) -> str:
    """The run's id, or the name of the runtime that holds one."""
    objects: Mapping[str, Any] = dict(render(jobs.NAME, config, name).objects())
    if "runtime" in objects:
        return str(objects["runtime"]["metadata"]["name"])
    spec = objects["workload"]["spec"]
    if "elasticPolicy" in spec:
        return str(spec["elasticPolicy"]["rdzvId"])
    found = {each["name"]: each.get("value") for each in spec["template"]["spec"]["containers"][0]["env"]}
    return str(found["PET_RDZV_ID"])


def test_a_container_of_the_users_keeps_its_command() -> None:
    """Only the check's own digest is left out of what tells workloads apart."""
    own = {"name": "own", "command": ["python3", "-I", "-S", "-c", "print(1)", DIGEST]}
    template: Any = {"spec": {"containers": [own, {"name": "plain"}], "volumes": []}}

    assert without_launcher(template) == template


def test_what_lasts_has_a_digest_of_its_own() -> None:
    """The objects by which a job is told from another have one that no launcher has."""
    found: Any = lasting(jobs.NAME, jobs.job(**VERIFIED)).workload

    assert found["spec"]["template"]["spec"]["containers"][0]["command"][5] == "0" * 64


def test_a_name_that_is_known_later_is_looked_at_then() -> None:
    """Its digest is late as well, and a name without one ends the update with the reason."""
    assert launcher.verified_digest(KnownLater()) == KnownLater()
    assert launcher.verified_digest(f"team-launcher-a1-{DIGEST}") == DIGEST
    with pytest.raises(ValueError, match="'team-launcher-1' does not: take the `config_map` of an `ElasticLauncher`"):
        launcher.verified_digest("team-launcher-1")
