"""The Pod Security profile `restricted`, judged as the API server's admission judges it.

Sources: https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted and
https://github.com/kubernetes/pod-security-admission/tree/v0.34.1/policy. What a cluster may relax for Windows and for
user namespaces is not relaxed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from elastic_infra.manifests.figures import at, every_container, items, pod_template, words

Fields = Mapping[str, Any]


def unmet(workload: Fields) -> list[str]:
    """The demands of the profile that the pods of a workload do not meet, by Kubernetes' names of the fields."""
    template, containers = pod_template(workload), every_container(workload)
    pod = at(template, "spec.securityContext")
    own = [at(each, "securityContext") for each in containers]

    def stated(field: str) -> list[Any]:
        """What the pod and its containers say."""
        return [value for context in (pod, *own) if (value := at(context, field)) is not None]

    def in_force(field: str) -> list[Any]:
        """What holds for each container, which says otherwise than its pod or takes what that says."""
        return [at(pod, field) if (value := at(context, field)) is None else value for context in own]

    held = {
        "runAsNonRoot": all(value is True for value in stated("runAsNonRoot") + in_force("runAsNonRoot")),
        "runAsUser": 0 not in stated("runAsUser"),
        "seccompProfile": _are(_PROFILES, stated("seccompProfile.type") + in_force("seccompProfile.type")),
        "appArmorProfile": _are(_PROFILES, stated("appArmorProfile.type")) and _has_known_apparmor(template),
        "seLinuxOptions": _are(_SELINUX_TYPES, stated("seLinuxOptions.type"))
        and not any(stated("seLinuxOptions.user") + stated("seLinuxOptions.role")),
        "sysctls": _are(_SYSCTLS, (each.get("name") for each in items(at(pod, "sysctls")))),
        "hostProcess": not any(stated("windowsOptions.hostProcess")),
        "privileged": not any(stated("privileged")),
        "allowPrivilegeEscalation": all(at(context, "allowPrivilegeEscalation") is False for context in own),
        "capabilities": all(map(_has_no_capability, own)),
        "procMount": _are(("Default",), stated("procMount")),
        "hostPort": not any(port.get("hostPort") for each in containers for port in items(each.get("ports"))),
        "host of a probe": not any(host for each in containers for host in _probed_hosts(each)),
        "volumes": _are(_VOLUMES, (key for volume in items(at(template, "spec.volumes")) for key in volume)),
        "host namespaces": not any(at(template, f"spec.{name}") for name in ("hostNetwork", "hostPID", "hostIPC")),
    }
    return [name for name, holds in held.items() if not holds]


def _are(allowed: tuple[str, ...], values: Iterable[Any]) -> bool:
    return all(value in allowed for value in values)


def _has_no_capability(context: Any) -> bool:  # noqa: ANN401 - verbatim Kubernetes
    dropped, added = (words(at(context, f"capabilities.{kind}")) for kind in ("drop", "add"))
    return "ALL" in dropped and _are(("NET_BIND_SERVICE",), added)


def _has_known_apparmor(template: Any) -> bool:  # noqa: ANN401 - verbatim Kubernetes
    """Whether no annotation, the form before the field, has another profile."""
    found = at(template, "metadata.annotations")
    annotations = found if isinstance(found, Mapping) else {}
    profiles = [str(value) for key, value in annotations.items() if key.startswith(_APPARMOR_ANNOTATION)]
    return all(each in {"", "runtime/default"} or each.startswith("localhost/") for each in profiles)


def _probed_hosts(container: Fields) -> Iterator[object]:
    for caller in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"):
        yield from (at(container, f"{caller}.{way}.host") for way in ("httpGet", "tcpSocket"))


_PROFILES: Final = ("RuntimeDefault", "Localhost")
"""Types of profile of seccomp and of AppArmor."""

_APPARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"

_SELINUX_TYPES: Final = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")

_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)

_VOLUMES: Final = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "name",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
"""Keys of a volume: its name, and the types that are allowed."""
