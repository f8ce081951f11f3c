"""Two to eight nodes of eight GPUs, the first two placed together, away from cluster nodes that keep failing."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "gang",
    {
        "image": "registry.example.com/digits:1",
        "namespace": "research",
        "script": "train.py",
        "args": ["--epochs", "200"],
        "working_dir": "/app",
        "target": "job",
        "elastic": {"nnodes": "2:8"},
        "resources": {"cpu": "96", "memory": "1024Gi", "gpu": {"count": 8}},
        "shared_memory": {"size": "256Gi"},
        "placement": {
            "gang": {"scheduler": "coscheduling", "timeout_seconds": 300},
            "avoid_bad_nodes": True,
            "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
        },
        "storage": {"checkpoint": {"claim": "digits-checkpoints"}},
    },
)

pulumi.export("job", job.job_name)
