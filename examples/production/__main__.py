"""Two to sixteen nodes of eight GPUs on spot nodes, with what a platform team asks for."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(
    "production",
    {
        "image": "registry.example.com/llm@sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
        "namespace": "research",
        "script": "train.py",
        "args": ["--batch-size", "256"],
        "working_dir": "/app",
        "target": "job",
        "labels": {"team": "language"},
        "elastic": {"nnodes": "2:16", "max_restarts": 10},
        "runtime": {"nccl_collective_timeout_sec": 300, "shutdown_grace_seconds": 20},
        "resources": {"cpu": "96", "memory": "1024Gi", "ephemeral_storage": "200Gi", "gpu": {"count": 8}},
        "shared_memory": {"size": "256Gi"},
        "placement": {
            "spot": "preferred",
            "topology_pack": {"topology_key": "topology.kubernetes.io/zone"},
            "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
        },
        "disruption": {"termination_grace_period_seconds": 30},
        "health_check": {"disk": "50Gi"},
        "initializers": [
            {
                "name": "model",
                "kind": "huggingface",
                "source": "meta-llama/Llama-3.1-8B",
                "revision": "0e9e39f249a16976918f6564b8830bc894c89659",
                "path": "/models/llama",
                "env": {"HF_TOKEN": {"secret": "hugging-face", "key": "token"}},
            },
        ],
        "security": {"own_service_account": True, "read_only_root": True},
        "storage": {
            "checkpoint": {"claim": "llm-checkpoints"},
            "volumes": [{"name": "models", "claim": "models"}],
            "mounts": [{"volume": "models", "mount_path": "/models"}],
        },
        "launcher": {
            "metrics_port": 9400,
            "verify": True,
            "kubernetes_events": True,
            "webhook": {"secret": "training-hooks"},
        },
    },
)

pulumi.export("job", job.job_name)
