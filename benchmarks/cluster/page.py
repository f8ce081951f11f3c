"""What a benchmark on the cluster says of its measurement, and its page: heading, facts, note and table."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.common.results import Results, command, listed, machine
from tests.cluster import kube
from tools import modules


def facts(api: kube.Kube, module: str, arguments: Sequence[str], *programs: str) -> list[str]:
    """What a reader must know of the measurement, taken before it begins: versions, processors, load, day and command.

    Args:
        api: of the testbed, which tells its version.
        module: the benchmark's.
        arguments: of its command line.
        programs: of the testbed that the figures depend on, by their folders in `tools`.
    """
    kubernetes = str(api.call("GET", "/version")["gitVersion"]).removeprefix("v")
    pinned = modules.load_all()
    testbed = [f"Kubernetes {kubernetes} of the testbed", *(f"{name} {pinned[name].version}" for name in programs)]
    return [", ".join(testbed), *machine(command(module, arguments), "torch")]


def page(title: str, results: Results, *, note: str, table: str) -> str:
    """The page's text.

    Args:
        title: heading of the page.
        results: the content of the results' file.
        note: what the figures mean and how they were taken.
        table: Markdown of the figures.
    """
    return f"# {title}\n\n{listed(results)}\n\n{note}\n\n{table}\n"
