"""Deploys the job in job.yaml."""

from pathlib import Path

import yaml

from elastic_infra import ElasticTrainingJob

ElasticTrainingJob("kubeflow-echo", yaml.safe_load((Path(__file__).parent / "job.yaml").read_text()))
