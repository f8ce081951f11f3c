"""The speech team's own component: few questions, the team's answers to the rest."""

from __future__ import annotations

from typing import Any

import pulumi

from elastic_infra import ElasticTrainingJob

OWNER = "speech@example.com"


class SpeechTraining(pulumi.ComponentResource):
    """A training job of the team, with its access to the model hub."""

    job: ElasticTrainingJob

    def __init__(
        self,
        name: str,
        *,
        image: pulumi.Input[str],
        namespace: pulumi.Input[str],
        nodes: str,
        guarded: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Register the job; `nodes` is a number or a range, `guarded` refuses changes that restart the job."""
        super().__init__("speech:index:SpeechTraining", name, {}, opts)
        self.job = ElasticTrainingJob(
            name,
            {
                "image": image,
                "script": "train.py",
                "namespace": namespace,
                "elastic": {"nnodes": nodes},
                "resources": {"cpu": "2", "memory": "4Gi"},
                "env": {"HF_TOKEN": {"secret": "hub", "key": "token"}},
                "storage": {"checkpoint": {"size": "10Gi"}},
                "run_policy": {"on_restart": "refuse" if guarded else "replace"},
            },
            pulumi.ResourceOptions(parent=self, transforms=[owned]),
        )
        self.register_outputs({"job": self.job.job_name})


def owned(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """Every Kubernetes object of the job names its owner."""
    if not args.type_.startswith("kubernetes:"):
        return None
    props: dict[str, Any] = {**args.props}
    annotations = {**props["metadata"].get("annotations", {}), "example.com/owner": OWNER}
    props["metadata"] = {**props["metadata"], "annotations": annotations}
    return pulumi.ResourceTransformResult(props=props, opts=args.opts)
