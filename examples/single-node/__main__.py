"""One pod with four GPUs. It needs no training operator, and is retried when its cluster node is lost."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "single-node",
    {
        "image": "registry.example.com/digits:1",
        "script": "train.py",
        "working_dir": "/app",
        "resources": {"cpu": "16", "memory": "64Gi", "gpu": {"count": 4}},
        "storage": {"checkpoint": {"claim": "digits-checkpoints"}},
    },
)

pulumi.export("job", job.job_name)
