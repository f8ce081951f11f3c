"""The team's component under Pulumi's mocks, without an engine."""

from __future__ import annotations

from typing import Any

import pulumi

MADE: list[pulumi.runtime.MockResourceArgs] = []


class Mocks(pulumi.runtime.Mocks):
    """Takes every resource as it is asked for."""

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """Note the resource, and make it."""
        MADE.append(args)
        return f"{args.name}-id", args.inputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], None]:
        """No function is called."""
        return {**args.args}, None


pulumi.runtime.set_mocks(Mocks(), project="training", stack="test", preview=False)

from team import SpeechTraining  # noqa: E402 - after the mocks are set, as Pulumi's guide has it


@pulumi.runtime.test
def test_the_job_is_in_the_teams_namespace() -> pulumi.Output[None]:
    """The image and the namespace are given, the rest is the team's."""
    training = SpeechTraining("speech", image="registry.example.com/speech:1", namespace="training", nodes="2:4")

    def check(values: list[Any]) -> None:
        workload = next(args for args in MADE if args.name == "speech-workload")
        worker = workload.inputs["spec"]["pytorchReplicaSpecs"]["Worker"]
        (container,) = worker["template"]["spec"]["containers"]

        assert values == ["speech", 2, 4]
        assert workload.inputs["metadata"]["namespace"] == "training"
        assert container["image"] == "registry.example.com/speech:1"
        assert {"name": "hub", "key": "token"} in [
            variable["valueFrom"]["secretKeyRef"] for variable in container["env"] if variable["name"] == "HF_TOKEN"
        ]

    return pulumi.Output.all(training.job.job_name, training.job.min_nodes, training.job.max_nodes).apply(check)
