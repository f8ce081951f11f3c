"""From config to Kubernetes objects: pure, deterministic, without a cluster and without Pulumi.

`render` is the one door. The same config gives the same objects, byte for byte; what it returns is what the API
server gets.
"""

from elastic_infra.manifests.model import Manifest, Manifests, Value
from elastic_infra.manifests.render import render

__all__ = ["Manifest", "Manifests", "Value", "render"]
