"""The policy pack: the same rules, asked by Pulumi."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pulumi_policy as pulumi
import pytest
import yaml

from elastic_infra import JobConfig, __version__, render
from elastic_infra.policy import pack
from elastic_infra.policy.check import JOB_RULES, STACK_RULES
from tests.engine.conftest import engine, provider  # noqa: F401 - fixtures
from tests.engine.engine import Engine
from tests.engine.jobs import job
from tests.policy.test_rules import JOB, SPOT

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
    manifest = dict(render("llm", JobConfig.from_mapping(config)).objects())[role]
    policy = next(each for each in pack.policies() if each.name == name)
    options = pulumi.PolicyResourceOptions(
        protect=False, ignore_changes=[], delete_before_replace=None, aliases=[],
        custom_timeouts=pulumi.PolicyCustomTimeouts(0, 0, 0), additional_secret_outputs=[],
    )  # fmt: skip
    args = pulumi.ResourceValidationArgs(
        f"kubernetes:{manifest['apiVersion']}:{manifest['kind']}", manifest, "urn", f"llm-{role}", options, None,
        stack_tags={}, config=settings,
    )  # fmt: skip
    said: list[str] = []
    assert isinstance(policy, pulumi.ResourceValidationPolicy)

    def report(message: str, _urn: str | None = None) -> None:
        said.append(message)

    policy.validate(args, report)
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


def test_settings_come_from_the_packs_config() -> None:
    """The same settings as in policy.yaml, with Pulumi's own word for the level left to Pulumi."""
    assert _ask(JOB, "node-budget", {"per_job": 3}) != []
    assert _ask(JOB, "node-budget", {"per_job": 4}) == []
    assert _ask({**JOB, "placement": {"affinity": SPOT}, "storage": {}}, "checkpoint-when-preemptible", {}) != []


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
