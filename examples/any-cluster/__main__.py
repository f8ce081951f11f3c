"""One to four nodes on a cluster without any operator: an Indexed batch/v1 Job."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "any-cluster",
    {
        "image": "registry.example.com/digits:1",
        "script": "train.py",
        "args": ["--epochs", "200"],
        "working_dir": "/app",
        "target": "job",
        "elastic": {"nnodes": "1:4"},
        "resources": {"cpu": "2", "memory": "4Gi"},
        "storage": {"checkpoint": {"claim": "digits-checkpoints"}},
    },
)

pulumi.export("job", job.job_name)
