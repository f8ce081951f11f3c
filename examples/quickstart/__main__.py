"""Two to four nodes on CPUs. An autoscaler resizes the job, and it keeps training."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "quickstart",
    {
        "image": "registry.example.com/digits:1",
        "script": "train.py",
        "args": ["--epochs", "200"],
        "working_dir": "/app",
        "elastic": {"nnodes": "2:4"},
        "resources": {"cpu": "2", "memory": "4Gi"},
        "storage": {"checkpoint": {"size": "1Gi"}},
        "autoscaling": {"metrics": [{"type": "cpu", "target": "80"}]},
    },
)

pulumi.export("job", job.job_name)
pulumi.export("rendezvous", job.rendezvous_endpoint)
