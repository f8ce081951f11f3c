"""Rules that a platform team sets for training jobs: the same offline and as a Pulumi policy pack.

Rules read the objects that go to the API server, never the config, so that the checked objects are those that run.
"""

from elastic_infra.policy.check import Violation, check
from elastic_infra.policy.settings import Policy, load_policy

__all__ = ["Policy", "Violation", "check", "load_policy"]
