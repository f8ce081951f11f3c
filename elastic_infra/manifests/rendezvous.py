"""The settings of the rendezvous that every node gets, whatever the workload object."""

from __future__ import annotations

from elastic_infra.config import JobConfig


def rendezvous_settings(config: JobConfig) -> dict[str, str]:
    """The values of `--rdzv-conf`, by key."""
    budgets = config.elastic.rdzv_configs
    return {
        **({"is_host": "false"} if config.rendezvous_host == "dedicated" else {}),
        "join_timeout": str(budgets.join_timeout),
        "last_call_timeout": str(budgets.last_call_timeout),
        "timeout": str(budgets.timeout),
    }
