"""What a change of job specs will do to the jobs that run: nothing, an update in place, or a restart.

Needs neither a cluster nor secrets, and never imports Pulumi in this process. It predicts from the same manifests, and
the same list of paths that restart, as the component uses.
"""

from elastic_infra.preview.compare import compare
from elastic_infra.preview.model import Change, Comparison, Consequence, Delta, Job, JobDiff, Side, SideFault

__all__ = ["Change", "Comparison", "Consequence", "Delta", "Job", "JobDiff", "Side", "SideFault", "compare"]
