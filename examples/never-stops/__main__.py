"""Two to four nodes whose workers keep their processes while nodes come and go."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "never-stops",
    {
        "image": "registry.example.com/never-stops:1",
        "script": "train.py",
        "args": ["--steps", "10000"],
        "working_dir": "/app",
        "elastic": {"nnodes": "2:4"},
        "resources": {"cpu": "2", "memory": "4Gi"},
        "storage": {"checkpoint": {"size": "1Gi"}},
    },
)

pulumi.export("job", job.job_name)
