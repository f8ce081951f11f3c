"""The platform team's stack: the place for training jobs, and what other stacks may know of it."""

import pulumi
from pulumi_kubernetes.core.v1 import Namespace

space = Namespace("training", metadata={"name": f"training-{pulumi.get_stack()}"})

pulumi.export("namespace", space.metadata["name"])
