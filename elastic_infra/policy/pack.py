"""The same rules as a Pulumi policy pack: one policy for each rule, configured as Pulumi does.

Settings come from `--policy-pack-config`, under the rule's name; the level is Pulumi's `enforcementLevel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pulumi_policy as pulumi
from pydantic import ValidationError

from elastic_infra.config.errors import faults_of
from elastic_infra.policy.check import JOB_RULES, STACK_RULES, is_ours, over_budget
from elastic_infra.policy.settings import Policy, Rule

NAME: Final = "elastic-infra"
Report = Callable[..., None]


def policies() -> list[pulumi.Policy]:
    """Every rule about one job, then those about all jobs of a stack."""
    return [_job_policy(field) for field in JOB_RULES] + [_stack_policy(field) for field in STACK_RULES]


def serve() -> None:
    """Answer the engine until it ends this process."""
    pulumi.PolicyPack(name=NAME, enforcement_level=pulumi.EnforcementLevel.ADVISORY, policies=policies())


def policy_name(field: str) -> str:
    """Pulumi's spelling of a rule's name."""
    return field.replace("_", "-")


def rule_of(field: str, config: Mapping[str, Any]) -> Rule:
    """A rule's settings out of a policy's config.

    Raises:
        ValueError: the config is not valid; says where.
    """
    model = _model(field)
    try:
        return model.model_validate({"level": "advisory", **(config or {})})
    except ValidationError as error:
        raise ValueError("; ".join(map(str, faults_of(error, model)))) from None


def _model(field: str) -> type[Rule]:
    annotation = Policy.model_fields[field].annotation
    if not (isinstance(annotation, type) and issubclass(annotation, Rule)):
        message = f"{field!r} is no rule"
        raise TypeError(message)
    return annotation


def _schema(field: str) -> pulumi.PolicyConfigSchema | None:
    properties = dict(_model(field).model_json_schema()["properties"])
    del properties["level"]  # Pulumi's enforcementLevel
    return pulumi.PolicyConfigSchema(properties=properties) if properties else None


def _job_policy(field: str) -> pulumi.Policy:
    def validate(args: pulumi.ResourceValidationArgs, report: Report) -> None:
        if is_ours(args.props):
            for message in JOB_RULES[field](args.props, rule_of(field, args.get_config())):
                report(f"job {args.props['metadata']['name']}: {message}")

    return pulumi.ResourceValidationPolicy(
        name=policy_name(field),
        description=str(_model(field).__doc__),
        validate=validate,
        config_schema=_schema(field),
    )


def _stack_policy(field: str) -> pulumi.Policy:
    def validate(args: pulumi.StackValidationArgs, report: Report) -> None:
        workloads = [resource.props for resource in args.resources if is_ours(resource.props)]
        for message in over_budget(field, workloads, rule_of(field, args.get_config())):
            report(message)

    return pulumi.StackValidationPolicy(
        name=f"{policy_name(field)}-of-the-stack",
        description=f"All jobs together: {_model(field).__doc__}",
        validate=validate,
        config_schema=_schema(field),
    )
