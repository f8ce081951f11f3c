"""What a change of job specs will do to the jobs that run: nothing, an update in place, or a restart.

The preview needs neither a cluster nor secrets, and never imports Pulumi in this process. It predicts from the
component's own manifests, and from the component's list of paths that restart a job.
"""

from elastic_infra.preview.compare import compare
from elastic_infra.preview.model import Change, Comparison, Consequence, Delta, Job, JobDiff, Side, SideFault

__all__ = ["Change", "Comparison", "Consequence", "Delta", "Job", "JobDiff", "Side", "SideFault", "compare"]
