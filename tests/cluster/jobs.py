"""Jobs that train the toy: rendered by the package, run by its launcher or, as control arms, by torchrun.

The arms differ only in the command of the container and, for plain torchrun, in the settings that an expert would know.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tests.jobs
from elastic_infra.config import JobConfig
from elastic_infra.manifests.render import render
from tests.cluster import kube, toy
from tests.cluster.cluster import CLAIM, MOUNT, READER, Namespace
from tests.cluster.waiting import until

TRAINING_SECONDS = 300
"""How long a test waits for training to come somewhere."""
Arm = Literal["ours", "tuned", "plain", "import", "idle"]
"""The package's launcher; torchrun with an expert's settings; torchrun as it comes; the import of torch and nothing
else; nothing at all."""
TOY = "toy"
SCRIPT = "/toy/toy.py"
CONTROL = {"rendezvous": {"host": "worker0"}}
"""Where torchrun's own store lives; it does not speak to the package's."""
TORCHRUN = {
    "pytorchjob": {**CONTROL, "run_policy": {"restart_policy": "OnFailure"}},
    "job": CONTROL,
    "trainjob": CONTROL,
}
"""Of each `target`: torchrun ends with exit code 1 for any failure, and is started again in its pod."""
IDLE = {**CONTROL, "resources": {"cpu": "50m", "memory": "200Mi"}}
"""For tests that want pods and no training."""
IDLE_COMMAND = "trap 'exit 143' TERM; case $HOSTNAME in $TOY_QUITS) sleep 3;; *) sleep infinity & wait;; esac"
"""A node whose name matches the pattern TOY_QUITS ends well, all others stay until they are told to go."""
HAVE_PODS = frozenset(("PyTorchJob", "Job", "TrainingRuntime"))
"""Kinds of the objects that have the template of the pods that train."""
IMPORT_COMMAND = """
import json, os, socket, time
import torch.distributed
with open(os.path.join(os.environ["TOY_FOLDER"], socket.gethostname() + ".jsonl"), "w") as file:
    file.write(json.dumps({"step": 1, "time": time.time()}) + os.linesep)
"""
TUNED_ENV = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
TUNED_RENDEZVOUS = {"last_call_timeout": "3"}


@dataclass(frozen=True)
class Training:
    """How long the toy trains, and how it spends its time."""

    steps: int = 1_000_000
    """By default until the test says so: no story races against the end of its job."""
    every: int = 5
    seconds: float = 0.2
    busy: bool = False
    hog: bool = False
    reports: bool = False
    """Whether the script tells the launcher of its steps, and saves where it is asked to."""

    def env(self) -> dict[str, str]:
        """The variables that the toy reads."""
        return {
            "TOY_FOLDER": MOUNT,
            "TOY_STEPS": str(self.steps),
            "TOY_EVERY": str(self.every),
            "TOY_SECONDS": str(self.seconds),
            "TOY_BUSY": str(int(self.busy)),
            "TOY_HOG": str(int(self.hog)),
            "TOY_REPORTS": str(int(self.reports)),
        }


def toy_config_map() -> kube.Object:
    """The training script, for a namespace."""
    source = Path(toy.__file__).read_text()
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": TOY}, "data": {"toy.py": source}}


def config(space: Namespace, training: Training, **changes: Any) -> dict[str, Any]:
    """A job of up to three small nodes, two at first; `changes` are top-level keys of the config."""
    image = changes.get("image", space.cluster.images[0])
    return {
        "image": image,
        "namespace": space.name,
        "script": SCRIPT,
        "env": {**training.env(), "TOY_IMAGE": image, "GLOO_SOCKET_IFNAME": "eth0"},
        "elastic": {"nnodes": "1:3", "initial_nodes": 2, "nproc_per_node": 1},
        "resources": {"cpu": "400m", "memory": "1200Mi"},
        # The script has no optimizer, so its first step is not seen and a newcomer would wait for ten minutes.
        "runtime": {"startup_patience_seconds": 30},
        "storage": {
            "checkpoint": {"claim": CLAIM, "mount_path": MOUNT},
            "volumes": [{"name": TOY, "configmap": TOY}],
            "mounts": [{"volume": TOY, "mount_path": "/toy"}],
        },
        **changes,
    }


def objects(name: str, settings: Mapping[str, Any], arm: Arm) -> list[kube.Object]:
    """The objects of a job, dependencies first."""
    rendered = render(name, JobConfig.from_mapping(settings))
    plain: list[kube.Object] = json.loads(json.dumps([manifest for _, manifest in rendered.objects()]))
    return [with_arm(manifest, arm) for manifest in plain]


def submit(space: Namespace, name: str, settings: Mapping[str, Any], arm: Arm) -> None:
    """Creates a job's objects in its namespace."""
    for manifest in objects(name, settings, arm):
        space.apply(manifest)


def last_step(space: Namespace) -> int:
    """The latest step that any worker has finished; 0 before the first."""
    return max((int(str(line["step"])) for line in space.lines("*.jsonl")), default=0)


def await_step(space: Namespace, step: int) -> None:
    """Returns once training has come to `step`."""
    until(f"step {step}", lambda: last_step(space) >= step, TRAINING_SECONDS, describe=space.describe)


def await_world(space: Namespace, size: int, after: int = 0, seconds: float = TRAINING_SECONDS) -> None:
    """Returns once `size` workers train together, at a step later than `after`."""

    def together() -> bool:
        lines = [line for line in space.lines("*.jsonl") if int(str(line["step"])) > after]
        return bool(lines) and max(lines, key=lambda line: float(str(line["time"])))["world"] == size

    until(f"a world of {size} after step {after}", together, seconds, describe=space.describe)


def await_image(space: Namespace, image: str) -> None:
    """Returns once a node with this image trains."""
    until(
        f"training with {image}",
        lambda: any(line["image"] == image for line in space.lines("*.jsonl")),
        TRAINING_SECONDS,
        describe=space.describe,
    )


def finish(space: Namespace, name: str, training: Training, seconds: float = TRAINING_SECONDS) -> None:
    """Lets a job end and checks its result.

    The job succeeds with the weights of an undisturbed run, and no step that a checkpoint held was repeated.
    """
    tell_to_finish(space)
    space.await_condition(name, "Succeeded", seconds)
    check_result(space, training)


def tell_to_finish(space: Namespace) -> None:
    """Has the workers end well after their next step."""
    space.cluster.run("-n", space.name, "exec", READER, "--", "touch", f"{MOUNT}/finish")


def check_result(space: Namespace, training: Training) -> None:
    """The weights of a job that has ended are those of an undisturbed run, and no saved step was repeated."""
    checkpoint = json.loads(space.read("checkpoint.json"))
    steps = first_workers_steps(space)

    assert checkpoint["step"] == steps[-1]
    assert checkpoint["weight"] == toy.undisturbed(checkpoint["step"])
    assert all(before - after < training.every for before, after in itertools.pairwise(steps)), steps


def first_workers_steps(space: Namespace) -> list[int]:
    """The steps that rank 0 has finished, on any node, in the order of time."""
    lines = sorted(space.lines("*.jsonl"), key=lambda line: float(str(line["time"])))
    return [int(str(line["step"])) for line in lines if line["rank"] == 0]


def with_arm(manifest: kube.Object, arm: Arm) -> kube.Object:
    """The same object with another arm in the place of the launcher, where it has pods that train."""
    if arm == "ours" or manifest["kind"] not in HAVE_PODS:
        return manifest
    changed: kube.Object = json.loads(json.dumps(manifest))
    (template,) = tests.jobs.templates({"workload": changed})
    container = template["spec"]["containers"][0]
    if arm == "idle":
        container.update(command=["sh", "-c", IDLE_COMMAND], args=[])
    elif arm == "import":
        container.update(command=["python3", "-c", IMPORT_COMMAND], args=[])
    else:
        container["command"] = ["torchrun"]
        _set_up_for_torchrun(changed, container, tuned=arm == "tuned")
    return changed


def _set_up_for_torchrun(manifest: kube.Object, container: dict[str, Any], *, tuned: bool) -> None:
    """Takes the launcher's settings away, and has a node that failed started again in its pod."""
    ours = {"PET_MONITOR_INTERVAL", "PET_RDZV_CONF"}
    env = [entry for entry in container["env"] if entry["name"] not in ours]
    env += [{"name": name, "value": value} for name, value in TUNED_ENV.items() if tuned]
    container["env"] = env
    if manifest["kind"] == "PyTorchJob":  # the operator makes the variables of the rendezvous
        policy = manifest["spec"]["elasticPolicy"]
        del policy["rdzvConf"]
        if tuned:
            policy["rdzvConf"] = [{"key": key, "value": value} for key, value in TUNED_RENDEZVOUS.items()]
        return
    if tuned:
        env.append({"name": "PET_RDZV_CONF", "value": ",".join(map("=".join, TUNED_RENDEZVOUS.items()))})
    job = manifest["spec"] if manifest["kind"] == "Job" else tests.jobs.replicated_job(manifest)
    for needs_never in ("podFailurePolicy", "backoffLimitPerIndex"):
        del job[needs_never]
    job["template"]["spec"]["restartPolicy"] = "OnFailure"
