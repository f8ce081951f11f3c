"""Two to eight nodes, as many as a Kueue queue has quota for when it admits the job."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "queued",
    {
        "image": "registry.example.com/digits:1",
        "namespace": "research",
        "script": "train.py",
        "args": ["--epochs", "200"],
        "working_dir": "/app",
        "target": "job",
        "elastic": {"nnodes": "2:8"},
        "resources": {"cpu": "2", "memory": "4Gi"},
        "storage": {"checkpoint": {"claim": "digits-checkpoints"}},
        "placement": {"queue": "research", "kueue": {"mode": "partial", "priority_class": "experiments"}},
    },
)

pulumi.export("job", job.job_name)
