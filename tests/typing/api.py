"""What a type checker says about programs that use the component. Read by mypy with the rest, never run.

A line that must be refused carries the code of its error; mypy fails here as soon as it no longer is.
"""

from __future__ import annotations

import pulumi
from typing_extensions import assert_type

from elastic_infra import ElasticTrainingJob, ElasticTrainingJobArgs, JobConfig, Manifests, render
from elastic_infra.args import EnvVar


def accepts_what_a_program_says(image: pulumi.Output[str], token: pulumi.Output[str]) -> None:
    """A literal is checked key by key; strings may come from other resources."""
    job = ElasticTrainingJob(
        "train",
        {
            "image": image,
            "script": "train.py",
            "elastic": {"nnodes": "2:4", "max_restarts": 5},
            "env": {"TOKEN": {"value": token}, "HF": {"secret": "hf", "key": "token"}},
            "resources": {"gpu": {"count": 8}},
        },
        pulumi.ResourceOptions(protect=True),
    )

    assert_type(job.job_name, pulumi.Output[str])
    assert_type(job.max_nodes, pulumi.Output[int])
    assert_type(job.labels, pulumi.Output[dict[str, str]])
    assert_type(job.scale_path, pulumi.Output[str | None])


def accepts_a_config() -> None:
    """A validated config may be shared between the component and `render`."""
    config = JobConfig(image="registry.example.com/train:1", script="train.py")
    assert_type(ElasticTrainingJob.from_config("train", config), ElasticTrainingJob)

    assert_type(render("train", config), Manifests)


def accepts_parts(variable: EnvVar) -> ElasticTrainingJobArgs:
    """Parts have names, for functions that make them."""
    return {"image": "i", "script": "s", "env": {"A": variable}}


def refuses_mistakes(late_count: pulumi.Output[int]) -> None:
    """A typo, a missing image and a late count are found before anything runs."""
    ElasticTrainingJob("train", {"image": "i", "sript": "s"})  # type: ignore[typeddict-unknown-key]
    ElasticTrainingJob("train", {"script": "s"})  # type: ignore[typeddict-item]
    ElasticTrainingJob("train", {"image": "i", "elastic": {"max_restarts": late_count}})  # type: ignore[typeddict-item]
    ElasticTrainingJob("train", {"image": "i", "elastic": {"nodes": 2}})  # type: ignore[typeddict-unknown-key]
