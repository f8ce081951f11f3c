"""The policy pack: the same rules, asked by Pulumi."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi_policy as pulumi
import pytest
import yaml
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, UnknownValueError, unknown_checking_proxy

from elastic_infra import JobConfig, __version__, render
from elastic_infra.manifests.metadata import MANAGED_BY
from elastic_infra.policy import pack
from elastic_infra.policy.check import JOB_RULES, STACK_RULES
from tests.engine.conftest import engine, provider  # noqa: F401 - fixtures
from tests.engine.engine import Engine
from tests.engine.jobs import job
from tests.policy.test_rules import JOB, SPOT
from tools.run import ROOT

PACK = Path(pack.__file__).parent


def test_every_rule_is_a_policy() -> None:
    """One a rule, one more for each budget of a stack; each described."""
    found = pack.policies()

    assert [policy.name for policy in found] == [
        *map(pack.policy_name, JOB_RULES),
        *(f"{pack.policy_name(field)}-of-the-stack" for field in STACK_RULES),
    ]
    assert all(policy.description for policy in found)


def _ask(config: dict[str, Any], name: str, settings: dict[str, Any], role: str = "workload") -> list[str]:
    """What a policy reports about an object of a job, called as Pulumi calls it."""
    return _said(dict(render("llm", JobConfig.from_mapping(config)).objects())[role], name, settings, role)


def _previewed(manifest: object) -> Any:
    """An object as a policy gets it in a preview, with each text "late" known late."""
    return unknown_checking_proxy(json.loads(json.dumps(manifest).replace('"late"', f'"{UNKNOWN_STRING_VALUE}"')))


def _preview(config: dict[str, Any], name: str, settings: dict[str, Any], role: str = "workload") -> list[str]:
    """What a policy reports in a preview about an object of a job."""
    manifest = dict(render("llm", JobConfig.from_mapping(config)).objects())[role]
    return _said(_previewed(manifest), name, settings, role)


def _of_the_stack(name: str, settings: dict[str, Any], *manifests: object) -> list[str]:
    """What a policy reports in a preview about all objects of a stack."""
    policy = next(each for each in pack.policies() if each.name == name)
    resources: Any = [SimpleNamespace(props=_previewed(each)) for each in manifests]
    said: list[str] = []
    assert isinstance(policy, pulumi.StackValidationPolicy)
    args = pulumi.StackValidationArgs(resources, stack_tags={}, config=settings)

    def report(message: str, _urn: str | None = None) -> None:
        said.append(message)

    policy.validate(args, report)
    return said


def _said(manifest: Any, name: str, settings: dict[str, Any], role: str = "workload") -> list[str]:
    """What a policy reports about one object; the last word is why it could not judge the rest."""
    policy = next(each for each in pack.policies() if each.name == name)
    options = pulumi.PolicyResourceOptions(
        protect=False, ignore_changes=[], delete_before_replace=None, aliases=[],
        custom_timeouts=pulumi.PolicyCustomTimeouts(0, 0, 0), additional_secret_outputs=[],
    )  # fmt: skip
    args = pulumi.ResourceValidationArgs(
        f"kubernetes:{role}", manifest, "urn", f"llm-{role}", options, None,
        stack_tags={}, config=settings,
    )  # fmt: skip
    said: list[str] = []
    assert isinstance(policy, pulumi.ResourceValidationPolicy)

    def report(message: str, _urn: str | None = None) -> None:
        said.append(message)

    try:
        policy.validate(args, report)
    except UnknownValueError as late:
        said.append(late.message)
    return said


def test_a_policy_says_what_its_rule_says() -> None:
    """Job and message, nothing when the rule holds."""
    (said,) = _ask({**JOB, "image": "train:1"}, "image-pinned", {})

    assert said.startswith("job llm: image 'train:1' is not pinned by digest")
    assert _ask(JOB, "image-pinned", {}) == []


def test_the_store_is_judged_by_what_is_about_pods() -> None:
    """Its image and its security, under the job's name; what is about nodes, or about training, is not asked of it."""
    foreign = {**JOB, "rendezvous": {"image": "quay.io/store:1"}}
    trusted = {"allowed": ["registry.example.com"]}
    required = {"required": {"WANDB_PROJECT": ""}}

    (said,) = _ask(foreign, "image-pinned", {}, "store")
    assert said.startswith("job llm: image 'quay.io/store:1' is not pinned by digest")
    assert _ask(foreign, "registries", trusted, "store") != []
    assert _ask(JOB, "registries", trusted, "store") == []
    assert _ask({**JOB, "security": {"profile": "baseline"}}, "restricted-profile", {}, "store") != []
    assert _ask(JOB, "restricted-profile", {}, "store") == []
    assert _ask(JOB, "environment", {"forbidden": ["PYTHON*"]}, "store") != []
    assert _ask(JOB, "environment", required, "store") == _ask(JOB, "node-budget", {"per_job": 0}, "store") == []


LATE = {**JOB, "env": {"BUCKET": "late", "WANDB_PROJECT": "llm"}, "storage": {}}


@pytest.mark.parametrize("target", ["pytorchjob", "job", "trainjob"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpu-budget", {"per_job": 31}),
        ("node-budget", {"per_job": 3}),
        ("restart-budget", {"max_restarts": 4}),
        ("checkpoint-when-preemptible", {"always": True}),
        ("environment", {"required": {"WANDB_PROJECT": "x"}}),
        ("gpu-types", {"required": True}),
        ("lifetime", {"max_active_seconds": 60}),
    ],
)
def test_a_late_variable_leaves_the_rules_on(target: str, name: str, settings: dict[str, Any]) -> None:
    """A rule reads only the values that it is about, so that a late one does not keep it from the others."""
    run_policy = {"on_restart": "refuse"}
    role = "runtime" if target == "trainjob" else "workload"
    (said,) = _preview({**LATE, "target": target, "run_policy": run_policy}, name, settings, role)

    assert said.startswith("job llm: ")


def test_a_late_required_variable_hides_no_missing_one() -> None:
    """What is known is told before the preview says which value it waits for."""
    lacks, waits = _preview(LATE, "environment", {"required": {"BUCKET": "gs://.+", "TEAM": ""}})

    assert lacks == "job llm: lacks the variable TEAM. Set env.TEAM."
    assert "can't be known during preview" in waits


@pytest.mark.parametrize(
    ("name", "settings"), [("registries", {"allowed": ["registry.example.com"]}), ("image-pinned", {})]
)
def test_a_late_image_hides_no_known_one(name: str, settings: dict[str, Any]) -> None:
    """The known sidecar behind it is judged, and the preview says which image it waits for."""
    sidecar = {"pod": {"spec": {"containers": [{"name": "side", "image": "quay.io/side:1"}]}}}
    told, waits = _preview({**JOB, "image": "late", "overlays": sidecar}, name, settings)

    assert told.startswith("job llm: image 'quay.io/side:1' is ")
    assert "containers.0.image can't be known during preview" in waits


@pytest.mark.parametrize("field", ["gpu", "node"])
@pytest.mark.parametrize(
    "foreign",
    [
        {"kind": "late"},
        {"metadata": "late"},
        {"kind": "StorageV2", "metadata": {"labels": "late"}},
        {"kind": "Job", "metadata": "late"},
        {"kind": "Job", "metadata": {"labels": "late"}},
    ],
)
def test_an_object_of_others_keeps_no_rule_from_the_jobs(field: str, foreign: dict[str, Any]) -> None:
    """Budgets of the stack stay on whatever of another object is known late, and no rule speaks of it."""
    ours = render("llm", JobConfig.from_mapping(LATE)).workload
    over = _of_the_stack(f"{field}-budget-of-the-stack", {"per_stack": 1}, foreign, ours)

    assert [line.partition(" use ")[0] for line in over] == ["all jobs together (1)"]
    assert _said(_previewed(foreign), f"{field}-budget", {"per_job": 0}) == []


@pytest.mark.parametrize("role", ["runtime", "store"])
def test_a_late_namespace_leaves_the_rules_on(role: str) -> None:
    """A job is told by its name, wherever it will be."""
    config = {**JOB, "target": "trainjob", "run_policy": {"on_restart": "refuse"}, "image": "train:1"}

    (said,) = _preview({**config, "namespace": "late"}, "image-pinned", {}, role)

    assert said.startswith("job llm: image 'train:1' is not pinned")


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_an_object_without_names_is_judged(kind: str) -> None:
    """The name of the job and of a variable may be missing in an object with the labels of a job."""
    container = {"image": "train:1", "env": [{"value": "1"}]}
    template = {"spec": {"containers": [container]}}
    spec = {"template": template} if kind == "Job" else {"pytorchReplicaSpecs": {"Worker": {"template": template}}}
    nameless = {"kind": kind, "metadata": {"labels": {MANAGED_BY: "elastic-infra"}}, "spec": spec}
    said = [_said(nameless, pack.policy_name(field), {}) for field in JOB_RULES]

    assert said[0][0].startswith("job without a name: image 'train:1' is not pinned")


def test_settings_come_from_the_packs_config() -> None:
    """The same settings as in policy.yaml, with Pulumi's own word for the level left to Pulumi."""
    assert _ask(JOB, "node-budget", {"per_job": 3}) != []
    assert _ask(JOB, "node-budget", {"per_job": 4}) == []
    assert _ask({**JOB, "placement": {"affinity": SPOT}, "storage": {}}, "checkpoint-when-preemptible", {}) != []


def test_the_settings_in_the_docs_are_the_packs() -> None:
    """Each policy of `policy.json` is there, and takes what it is given beside its level."""
    page = (ROOT / "docs/preview.md").read_text()
    shown = json.loads(page.partition("```json\n")[2].partition("```")[0])
    known = {policy.name: policy.config_schema.properties for policy in pack.policies() if policy.config_schema}

    assert shown
    for name, settings in shown.items():
        level, *others = settings
        assert (level, settings[level]) == ("enforcementLevel", "mandatory")
        assert set(others) <= set(known[name])
        pack.rule_of(name.removesuffix("-of-the-stack").replace("-", "_"), {key: settings[key] for key in others})


def test_a_wrong_setting_is_named() -> None:
    """Pulumi shows the error's text."""
    with pytest.raises(ValueError, match=r"per_job: .* greater than or equal to 0"):
        pack.rule_of("node_budget", {"per_job": -1})


def test_a_job_that_is_exempt_is_not_reported() -> None:
    """The same labels as offline."""
    exempt = {"exempt": [{"labels": {"team": "research"}, "reason": "r"}]}

    assert _ask({**JOB, "image": "train:1"}, "image-pinned", exempt) == []


def test_rules_of_ones_own_are_policies() -> None:
    """A pack of one's own adds them."""

    def no_debug(workload: Any) -> list[str]:
        """Debug jobs stay out."""
        return [f"{workload['metadata']['name']} is a debug job"]

    own = pack.policies({"no_debug": no_debug})[-1]

    assert (own.name, own.description) == ("no-debug", "Debug jobs stay out.")


def test_schemas_refer_to_nothing() -> None:
    """Pulumi follows no reference inside a policy's schema."""
    schemas = [policy.config_schema.properties for policy in pack.policies() if policy.config_schema]

    assert len(schemas) == len(pack.policies())
    assert "$ref" not in json.dumps(schemas)


def test_the_packs_version_is_the_packages() -> None:
    """A published pack tells which rules it has."""
    assert yaml.safe_load((PACK / "PulumiPolicy.yaml").read_text("utf-8"))["version"] == str(__version__)


@pytest.fixture
def _host(pulumi_cli: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulumi's Python language host, by which the CLI starts a pack written in Python."""
    found = shutil.which("pulumi-language-python") or shutil.which("pulumi-language-python", path=pulumi_cli.parent)
    if found is None:
        pytest.skip("no pulumi-language-python: the CLI cannot start a policy pack written in Python")
    folders = [str(Path(sys.executable).parent), str(Path(found).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))


@pytest.mark.engine
@pytest.mark.usefixtures("_host")
def test_the_engine_refuses_what_a_mandatory_rule_forbids(engine: Engine, tmp_path: Path) -> None:  # noqa: F811
    """`pulumi preview --policy-pack` runs the pack: mandatory fails, advisory tells, what holds is not told."""
    settings = {
        "all": "advisory",
        "image-pinned": "mandatory",
        "labels": {"required": {"team": ""}},
        "node-budget-of-the-stack": {"per_stack": 2},
    }
    (tmp_path / "config.json").write_text(json.dumps(settings), "utf-8")
    stack = engine.stack()
    # A host older than the CLI starts the program of the stack's folder in place of the pack's.
    shutil.copy(PACK / "__main__.py", stack._stack.workspace.work_dir)
    foreign = job(rendezvous={"image": "registry.example.com/store:1"})
    outcome = stack.preview(foreign, policy_packs=[str(PACK)], policy_pack_configs=[str(tmp_path / "config.json")])

    assert outcome.failed
    assert "[mandatory]  image-pinned" in outcome.text
    assert "job train: image 'registry.example.com/store:1' is not pinned" in outcome.text
    assert "[advisory]  labels" in outcome.text
    assert "[advisory]  node-budget-of-the-stack" in outcome.text
    assert "restricted-profile" not in outcome.text
