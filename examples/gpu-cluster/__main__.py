"""Two to sixteen nodes of eight GPUs, on cluster nodes kept for this work."""

import pulumi

from elastic_infra import ElasticTrainingJob

config = pulumi.Config()

job = ElasticTrainingJob(
    "gpu-cluster",
    {
        "image": config.require("image"),
        "namespace": "research",
        "script": "train.py",
        "args": ["--batch-size", "256"],
        "working_dir": "/app",
        "env": {
            "NCCL_DEBUG": {"value": "WARN"},
            "HF_TOKEN": {"secret": "hugging-face", "key": "token"},
        },
        "elastic": {"nnodes": "2:16", "initial_nodes": 8, "max_restarts": 10},
        "runtime": {"nccl_collective_timeout_sec": 300, "shutdown_grace_seconds": 100},
        "resources": {"cpu": "96", "memory": "1024Gi", "gpu": {"vendor": "nvidia", "count": 8}},
        "shared_memory": {"size": "256Gi"},
        "placement": {
            "node_selector": {"example.com/pool": "training"},
            "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
        },
        "storage": {"checkpoint": {"claim": "llm-checkpoints"}},
        "launcher": {"metrics_port": 9400},
    },
)

pulumi.export("job", job.job_name)
pulumi.export("scale", job.scale_path)
