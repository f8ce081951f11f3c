"""One cluster for all tests of this folder: the testbed, or with `--kubeconfig` the user's own."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from _pytest.terminal import TerminalReporter

from elastic_infra.manifests.train_job import VERSION
from tests.cluster import jobs, kube
from tests.cluster.account import Account, account, roles
from tests.cluster.cluster import Cluster, Namespace, namespace
from tests.cluster.provider.server import ClusterProvider
from tests.cluster.slots import SLOT, Slots
from tests.cluster.stack import JobStack, job_stack, why_no_official_provider
from tests.cluster.targets import TARGETS, Target
from tests.cluster.testbed import enforcer, kwok, lifecycle, metrics_server, programs
from tests.cluster.testbed import kueue as queues
from tests.cluster.testbed import trainer as controllers
from tests.cluster.testbed.__main__ import DEFAULT_DIR
from tests.cluster.testbed.controllers import Running
from tests.cluster.testbed.layout import IMAGES, NODE_NAME
from tests.engine.engine import Engine
from tests.engine.provider import serving


def pytest_addoption(parser: pytest.Parser) -> None:
    """Says which cluster the tests use."""
    group = parser.getgroup("cluster")
    group.addoption("--kubeconfig", type=Path, help="test on this cluster instead of a testbed on this machine")
    group.addoption("--image", action="append", default=[], help="with --kubeconfig: an image with torch, twice")
    group.addoption("--storage-class", default="", help="with --kubeconfig: a class of ReadWriteMany volumes")
    group.addoption("--cluster-dir", type=Path, default=DEFAULT_DIR, help="the testbed's folder (%(default)s)")
    group.addoption("--seed", type=int, default=1, help="draws the combinations of options (%(default)s)")


def pytest_report_header(config: pytest.Config) -> str:
    """What repeats the run."""
    return f"--seed {config.getoption('seed')}"


T = TypeVar("T")
PROVIDER = pytest.StashKey[str]()


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Says which kubernetes provider the engine used."""
    if PROVIDER in config.stash:
        terminalreporter.write_line(f"kubernetes provider: {config.stash[PROVIDER]}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Has a worker of pytest-xdist tell its controller which it was."""
    if PROVIDER in session.config.stash and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["provider"] = session.config.stash[PROVIDER]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Has the controller tell what its workers told."""
    if provider := getattr(node, "workeroutput", {}).get("provider"):
        node.config.stash[PROVIDER] = provider


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A running cluster; skips, with the reason, where there can be none.

    A testbed that runs already is used and left running. Each worker that runs tests side by side has its own.
    """
    try:
        kubectl = programs.built("kubectl")
    except programs.MissingProgramError as error:
        pytest.skip(f"no kubectl: {error}")
    own = pytestconfig.getoption("kubeconfig")
    if own is not None:
        images = tuple(pytestconfig.getoption("image"))
        yield Cluster(kubectl, own, (images[0], images[-1]), None, pytestconfig.getoption("storage_class"))
        return
    worker = os.environ.get("PYTEST_XDIST_WORKER", lifecycle.FIRST_WORKER)
    root = lifecycle.own_folder(pytestconfig.getoption("cluster_dir"), worker)
    was_up = lifecycle.holder(root) is not None
    try:
        testbed = lifecycle.up(root, lambda _: None)
    except lifecycle.MachineError as error:
        pytest.skip(f"no cluster: {error}")
    yield Cluster(kubectl, testbed.kubeconfig, IMAGES, root)
    if not was_up:
        lifecycle.down(root, lambda _: None)


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Iterator[kube.Kube]:
    """A client of the cluster's API, with the administrator's rights."""
    with tempfile.TemporaryDirectory() as folder, cluster.client(Path(folder)) as client:
        yield client


@pytest.fixture(scope="session")
def trainer(cluster: Cluster, api: kube.Kube) -> Iterator[Running | None]:
    """A cluster that serves TrainJobs, with its JobSet where that is the testbed's; skips where there is none."""
    with _served(cluster, api, VERSION, "TrainJob", controllers.running) as job_set:
        yield job_set


@pytest.fixture
def elastic_job_sets(trainer: Running | None) -> Callable[[], AbstractContextManager[None]]:
    """Has JobSet let the size of TrainJobs move meanwhile; skips where JobSet is not the testbed's."""
    if trainer is None:
        pytest.skip("only the testbed's JobSet can be given another feature gate")
    return lambda: trainer.settings(**controllers.ELASTIC)


@pytest.fixture(scope="module")
def kueue(cluster: Cluster, api: kube.Kube, trainer: Running | None) -> Iterator[None]:
    """A cluster in which Kueue admits jobs; skips where there is none."""
    del trainer  # Kueue begins to know TrainJobs long after their definition where that comes later
    with _served(cluster, api, queues.VERSION, "LocalQueue", queues.running):
        yield


Start = Callable[[Path, kube.Kube], AbstractContextManager[T]]


@contextmanager
def _served(cluster: Cluster, api: kube.Kube, api_version: str, kind: str, running: Start[T]) -> Iterator[T | None]:
    """A cluster with a kind's controllers: the user's own, or the tests' beside the testbed; skips without either."""
    own = None
    with ExitStack() as stack:
        if cluster.testbed is None:
            try:
                api.collection(api_version, kind, "default")
            except kube.KubeError as error:
                pytest.skip(f"the cluster has no {kind}: {error}")
        else:
            try:
                own = stack.enter_context(running(cluster.testbed, api))
            except programs.MissingProgramError as error:
                pytest.skip(f"no controller of {kind}s: {error}")
        yield own


@pytest.fixture(scope="session")
def metrics(cluster: Cluster, api: kube.Kube) -> Iterator[None]:
    """A cluster that knows what its pods use; skips where there is none."""
    with _served(cluster, api, metrics_server.VERSION, "PodMetrics", metrics_server.running):
        yield


@pytest.fixture(scope="module")
def enforced(cluster: Cluster) -> Iterator[None]:
    """A cluster whose network enforces NetworkPolicies; skips where the network is not the testbed's."""
    if cluster.testbed is None:
        pytest.skip("only the testbed's network is known to enforce policies, by an enforcer of the tests")
    try:
        with enforcer.running(cluster.testbed):
            yield
    except programs.MissingProgramError as error:
        pytest.skip(f"no enforcer: {error}")


@pytest.fixture
def slots(cluster: Cluster, api: kube.Kube) -> Iterator[Slots]:
    """Sets how many slots the testbed's own node has; skips where the cluster nodes are not the test's to change."""
    if cluster.testbed is None:
        pytest.skip("only the testbed's node can be given slots")

    def give(count: int) -> None:
        amounts = {SLOT: str(count)}
        api.patch(kwok.named(NODE_NAME), {"status": {"capacity": amounts, "allocatable": amounts}}, "status")

    yield give
    give(0)


@pytest.fixture
def nodes(cluster: Cluster, api: kube.Kube) -> Iterator[kwok.Nodes]:
    """Cluster nodes without a machine; skips where KWOK is not built, or the cluster is not the testbed."""
    if cluster.testbed is None:
        pytest.skip("KWOK runs beside the testbed alone")
    try:
        programs.built(kwok.TOOL)
    except programs.MissingProgramError as error:
        pytest.skip(f"no KWOK: {error}")
    with kwok.running(cluster.testbed, api) as own:
        yield own


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    """Each workload object; Trainer is there where the object needs it."""
    if request.param == "trainjob":
        request.getfixturevalue("trainer")
    return TARGETS[request.param]


@pytest.fixture(scope="session")
def engine(
    cluster: Cluster,
    api: kube.Kube,
    pulumi_cli: Path,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    """The Pulumi engine, with the official kubernetes provider where that can be had, else with the stand-in."""
    folder = tmp_path_factory.mktemp("engine")
    with serving(ClusterProvider(api)) as address, Engine.started(pulumi_cli, folder, address) as own:
        official = {key: value for key, value in own.environ.items() if key != "PULUMI_DEBUG_PROVIDERS"}
        reason = why_no_official_provider(pulumi_cli, official)
        if reason is None:
            pytestconfig.stash[PROVIDER] = "official"
            yield Engine(folder, {**official, "KUBECONFIG": str(cluster.kubeconfig)})
        else:
            pytestconfig.stash[PROVIDER] = f"the tests' stand-in (the official one cannot be had: {reason})"
            yield own


@pytest.fixture
def stack(engine: Engine, request: pytest.FixtureRequest) -> JobStack:
    """A stack for the one job of a story, which has the name that the module gives it."""
    return job_stack(engine, request.module.JOB, "ours")


@pytest.fixture
def operator(space: Namespace, tmp_path: Path) -> Account:
    """An account that may operate jobs, with the Role that the documentation has for it."""
    return account(space, "operator", roles()["elastic-infra-operate"], tmp_path)


@pytest.fixture
def space(cluster: Cluster, api: kube.Kube, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace that enforces the `restricted` profile and holds the toy, for one test."""
    with _fresh(cluster, api, request.node.originalname.removeprefix("test_")) as own:
        yield own


@pytest.fixture
def small_space(cluster: Cluster, api: kube.Kube, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Such a namespace whose checkpoint volume holds 1 MiB; skips where the volumes are not the testbed's."""
    if cluster.testbed is None:
        pytest.skip("only the testbed's volumes can be made small")
    with _fresh(cluster, api, request.node.originalname.removeprefix("test_"), small=True) as own:
        yield own


@pytest.fixture(scope="module")
def shared_space(cluster: Cluster, api: kube.Kube, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Such a namespace for all tests of a module."""
    with _fresh(cluster, api, request.node.path.stem.removeprefix("test_")) as own:
        yield own


@contextmanager
def _fresh(cluster: Cluster, api: kube.Kube, label: str, *, small: bool = False) -> Iterator[Namespace]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    name = f"{label.replace('_', '-')[:40]}-{secrets.token_hex(3)}"
    with namespace(cluster, api, name, labels, small=small) as own:
        own.apply(jobs.toy_config_map())
        yield own
