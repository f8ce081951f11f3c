"""What a platform team offers to its users: few questions, the company's answers to the rest."""

from __future__ import annotations

import pulumi

from elastic_infra import ElasticTrainingJob, ElasticTrainingJobArgs

GPUS_PER_NODE = 8


class TeamTraining(pulumi.ComponentResource):
    """A team's training job: on the GPU pool, in the team's namespace, with the team's checkpoints."""

    job: ElasticTrainingJob

    def __init__(
        self, name: str, *, team: str, image: str, script: str, nodes: str, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Register the job.

        Args:
            team: its namespace, and the label by which cost is told apart.
            nodes: a number, or a range in which the job keeps training.
        """
        super().__init__("acme:training:TeamTraining", name, {"team": team, "image": image}, opts)
        self.job = ElasticTrainingJob(
            name, company_job(team, image, script, nodes), pulumi.ResourceOptions(parent=self)
        )
        self.register_outputs({"job": self.job.job_name})


def company_job(team: str, image: str, script: str, nodes: str) -> ElasticTrainingJobArgs:
    """The company's answers, in one place."""
    return {
        "image": image,
        "image_pull_secrets": ["acme-registry"],
        "namespace": team,
        "script": script,
        "labels": {"acme.example.com/team": team},
        "elastic": {"nnodes": nodes, "max_restarts": 10},
        "resources": {"cpu": "48", "memory": "512Gi", "gpu": {"count": GPUS_PER_NODE}},
        "placement": {
            "priority_class": "training",
            "tolerations": [{"key": "acme.example.com/gpu", "effect": "NoSchedule"}],
        },
        "run_policy": {"on_restart": "refuse"},
        "storage": {"checkpoint": {"claim": f"{team}-checkpoints"}},
        "launcher": {"metrics_port": 9400},
    }
