"""The same rules as a Pulumi policy pack: one policy for each rule, configured as Pulumi does.

Settings come from `--policy-pack-config`, under the rule's name; the level is Pulumi's `enforcementLevel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pulumi_policy as pulumi
from pulumi_policy.proxy import UnknownValueError
from pydantic import ValidationError

from elastic_infra.config.errors import faults_of
from elastic_infra.manifests.figures import at
from elastic_infra.policy.check import (
    JOB_RULES,
    STACK_RULES,
    STORE_RULES,
    CustomJudge,
    exemption,
    judged,
    over_budget,
    owner,
    store_of,
)
from elastic_infra.policy.settings import Budget, Policy, Rule

NAME: Final = "elastic-infra"
Report = Callable[..., None]


def policies(custom: Mapping[str, CustomJudge] | None = None) -> list[pulumi.Policy]:
    """Every rule about one job, then those about all jobs of a stack, then those of your own."""
    own = [_custom_policy(name, judge) for name, judge in (custom or {}).items()]
    return [*map(_job_policy, JOB_RULES), *map(_stack_policy, STACK_RULES), *own]


def serve(custom: Mapping[str, CustomJudge] | None = None) -> None:
    """Answer the engine until it ends this process.

    Args:
        custom: rules of your own, by their names: the `__main__.py` of a pack of your own gives them.
    """
    pulumi.PolicyPack(name=NAME, enforcement_level=pulumi.EnforcementLevel.ADVISORY, policies=policies(custom))


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
    schema = _model(field).model_json_schema()
    properties = _inlined(schema["properties"], schema.get("$defs", {}))
    del properties["level"]  # Pulumi's enforcementLevel
    return pulumi.PolicyConfigSchema(properties=properties)


def _inlined(schema: Any, parts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """A schema without references to its parts, which Pulumi does not follow."""
    if isinstance(schema, list):
        return [_inlined(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(parts[schema["$ref"].rpartition("/")[2]], parts)
    return {key: _inlined(value, parts) for key, value in schema.items()}


def _job_policy(field: str) -> pulumi.Policy:
    def validate(args: pulumi.ResourceValidationArgs, report: Report) -> None:
        if not _is_ours(args.props):
            return
        store = store_of(args.props)
        workload, judges = (judged(args.props), JOB_RULES) if store is None else (store, STORE_RULES)
        if workload is None or field not in judges:
            return
        rule = rule_of(field, args.get_config())
        if exemption(workload, rule) is None:
            for message in judges[field](workload, rule):
                report(_told(workload, message))

    return pulumi.ResourceValidationPolicy(
        name=policy_name(field),
        description=str(_model(field).__doc__),
        validate=validate,
        config_schema=_schema(field),
    )


def _is_ours(props: Mapping[str, Any]) -> bool:
    """Whether an object has pods of a job's; one whose kind or labels are known late was not made by this package."""
    try:
        return owner(props) is not None
    except UnknownValueError:
        return False


def _told(workload: Mapping[str, Any], message: str) -> str:
    return f"job {at(workload, 'metadata.name') or 'without a name'}: {message}"


def _stack_policy(field: str) -> pulumi.Policy:
    def validate(args: pulumi.StackValidationArgs, report: Report) -> None:
        found = (judged(resource.props) for resource in args.resources if _is_ours(resource.props))
        workloads = [workload for workload in found if workload is not None]
        rule = rule_of(field, args.get_config())
        for message in over_budget(field, workloads, rule) if isinstance(rule, Budget) else ():
            report(message)

    return pulumi.StackValidationPolicy(
        name=f"{policy_name(field)}-of-the-stack",
        description=f"All jobs together: {_model(field).__doc__}",
        validate=validate,
        config_schema=_schema(field),
    )


def _custom_policy(name: str, judge: CustomJudge) -> pulumi.Policy:
    def validate(args: pulumi.ResourceValidationArgs, report: Report) -> None:
        if _is_ours(args.props) and (workload := judged(args.props)) is not None:
            for message in judge(workload):
                report(_told(workload, message))

    return pulumi.ResourceValidationPolicy(
        name=policy_name(name), description=(judge.__doc__ or name).strip(), validate=validate
    )
