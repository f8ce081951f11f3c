"""One to four nodes on a cluster with Kubeflow Trainer 2.3: a TrainJob with a runtime of its own."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "trainer-v2",
    {
        "image": "registry.example.com/digits:1",
        "script": "train.py",
        "args": ["--epochs", "200"],
        "working_dir": "/app",
        "target": "trainjob",
        "elastic": {"nnodes": "1:4"},
        "resources": {"cpu": "2", "memory": "4Gi"},
        "storage": {"checkpoint": {"claim": "digits-checkpoints"}},
    },
)

pulumi.export("job", job.job_name)
