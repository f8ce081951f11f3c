"""Two to four nodes with claimed GPUs, RDMA devices for NCCL, and large pages."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "devices",
    {
        "image": "registry.example.com/llm:1",
        "namespace": "research",
        "script": "train.py",
        "working_dir": "/app",
        "target": "job",
        "elastic": {"nnodes": "2:4", "nproc_per_node": "8"},
        "resources": {
            "cpu": "96",
            "memory": "1024Gi",
            "claims": [{"name": "gpus", "template": "eight-gpus"}],
            "rdma": {"resource": "vpc.amazonaws.com/efa", "count": 32},
            "hugepages": {"amount": "5Gi"},
        },
        "shared_memory": {"size": "256Gi"},
        "security": {"profile": "baseline", "run_as_user": 0},
        "storage": {"checkpoint": {"claim": "llm-checkpoints"}},
    },
)

pulumi.export("job", job.job_name)
