"""The user, the service account and the security profile of the pods."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from elastic_infra.config.base import Part
from elastic_infra.config.values import MAX_INT32, InputName, Whole


class Security(Part):
    """The user, the service account and the security profile of the pods."""

    profile: Literal["restricted", "baseline"] = "restricted"
    """Pod Security profile that the pods satisfy. https://kubernetes.io/docs/concepts/security/pod-security-standards/"""

    service_account: InputName | None = None
    """Service account of the pods; its token is not mounted. Unset: the namespace's `default`."""

    own_service_account: bool = False
    """Make a ServiceAccount for this job, named like it, that no pod gets a token of: rights, secrets and cloud
    identities that somebody gives to `default` are not the job's then. Excludes `service_account`. Off, because
    `pulumi up` needs rights on ServiceAccounts for it, and `default` may have the registry's secrets."""

    run_as_user: Annotated[Whole, Field(ge=0, le=MAX_INT32)] = 1000
    """User, group and volume group. Needs no entry in the image's passwd file: HOME and the caches of torch and
    Triton are on a writable volume. 0 only with `baseline`."""

    read_only_root: bool = False
    """Mount the image read-only; /tmp and HOME stay writable."""

    network_policy: bool = True
    """Make a NetworkPolicy that lets in the job's own pods on all ports, anyone on `launcher.metrics_port`, and no
    other traffic; what goes out stays as it is. On, because no password closes the ports at which workers meet. Off is
    for an account without a right for this kind. A job on its machines' network has none, since a policy knows the
    nodes of such a job by no label."""
