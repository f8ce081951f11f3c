"""A TrainJob of one to four nodes that grows and shrinks while it trains, where JobSet's feature gate lets it."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "trainer-v2-elastic",
    {
        "image": "registry.example.com/digits:1",
        "script": "train.py",
        "args": ["--epochs", "200"],
        "working_dir": "/app",
        "target": "trainjob",
        "elastic": {"nnodes": "1:4", "elastic_job_set": True},
        "resources": {"cpu": "2", "memory": "4Gi"},
        "storage": {"checkpoint": {"claim": "digits-checkpoints"}},
        "autoscaling": {"policy": "capacity"},
    },
)

pulumi.export("job", job.job_name)
