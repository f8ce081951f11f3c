"""The speech team's jobs: two nodes in `dev`, a guarded range in `prod`."""

import pulumi
from pulumi_kubernetes.core.v1 import Secret
from team import SpeechTraining

config = pulumi.Config()
stack = pulumi.get_stack()
platform = pulumi.StackReference(f"organization/platform/{stack}")
namespace = platform.require_output("namespace")

hub = Secret(
    "hub",
    metadata={"name": "hub", "namespace": namespace},
    string_data={"token": config.require_secret("hub_token")},
)
training = SpeechTraining(
    "speech",
    image=config.require("image"),
    namespace=namespace,
    nodes="2:8" if stack == "prod" else "2",
    guarded=stack == "prod",
    opts=pulumi.ResourceOptions(depends_on=[hub]),
)

pulumi.export("job", training.job.job_name)
pulumi.export("rendezvous", training.job.rendezvous_endpoint)
