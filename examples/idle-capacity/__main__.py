"""One to sixteen nodes, as many as find room in the cluster, without an operator or a metric."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "idle-capacity",
    {
        "image": "registry.example.com/digits:1",
        "script": "train.py",
        "args": ["--epochs", "200"],
        "working_dir": "/app",
        "target": "job",
        "elastic": {"nnodes": "1:16"},
        "autoscaling": {"policy": "capacity"},
        "resources": {"cpu": "2", "memory": "4Gi"},
        "storage": {"checkpoint": {"claim": "digits-checkpoints"}},
    },
)

pulumi.export("job", job.job_name)
