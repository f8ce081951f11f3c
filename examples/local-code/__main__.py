"""One to four nodes that train the code beside this file, in an image that has only torch."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "local-code",
    {
        "image": "registry.example.com/torch:2.9",
        "script": "train.py",
        "args": ["--steps", "500"],
        "workdir": {"path": "./src", "exclude": ["*.ipynb"]},
        "elastic": {"nnodes": "1:4"},
        "resources": {"cpu": "2", "memory": "4Gi"},
        "storage": {"checkpoint": {"claim": "line-checkpoints"}},
    },
)

pulumi.export("job", job.job_name)
