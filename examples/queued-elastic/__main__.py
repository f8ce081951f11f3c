"""One to eight nodes in a Kueue queue; the number changes while the job trains."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "queued-elastic",
    {
        "image": "registry.example.com/digits:1",
        "namespace": "research",
        "script": "train.py",
        "args": ["--epochs", "200"],
        "working_dir": "/app",
        "target": "job",
        "elastic": {"nnodes": "1:8"},
        "resources": {"cpu": "2", "memory": "4Gi"},
        "storage": {"checkpoint": {"claim": "digits-checkpoints"}},
        "placement": {"queue": "research", "kueue": {"mode": "elastic"}},
    },
)

pulumi.export("job", job.job_name)
