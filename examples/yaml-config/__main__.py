"""A job that lives in the stack's config: one program, a job a stack."""

import pulumi

from elastic_infra import ElasticTrainingJob

job = ElasticTrainingJob(pulumi.get_project(), pulumi.Config().require_object("job"))

pulumi.export("job", job.job_name)
