# ruff: noqa: E501 - the schema takes a docstring as it stands, so each is one line
"""What `ElasticTrainingJob` takes, as TypedDicts: the form that Pulumi's schema allows in every language.

Written from `elastic_infra.config` by `make golden`; not to be edited. Only strings that another resource may deliver
are `pulumi.Input`; each field's limits and defaults are the model's.
"""

from typing import Any

import pulumi
from typing_extensions import NotRequired, TypedDict

__all__ = [
    "Affinity",
    "Autoscaling",
    "Behavior",
    "Checkpoint",
    "Disruption",
    "Elastic",
    "ElasticTrainingJobArgs",
    "EnvVar",
    "Gang",
    "Gpu",
    "HealthCheck",
    "Hugepages",
    "Initializer",
    "Kueue",
    "Launcher",
    "Metric",
    "Mount",
    "Overlays",
    "Placement",
    "Rdma",
    "RdzvConfigs",
    "Rendezvous",
    "RendezvousResources",
    "ResourceClaim",
    "Resources",
    "RunPolicy",
    "Runtime",
    "ScalingRules",
    "SchedulingPolicy",
    "Security",
    "SharedMemory",
    "Storage",
    "Toleration",
    "TopologyPack",
    "TopologySpread",
    "Volume",
    "Webhook",
    "Workdir",
]


class EnvVar(TypedDict):
    """One variable: a value, or a reference that the kubelet resolves (so that no secret enters the manifest)."""

    value: NotRequired[pulumi.Input[str]]
    """The value as text. A plain string or number in place of the mapping means this."""

    secret: NotRequired[pulumi.Input[str]]
    """Name of a Secret in the job's namespace; needs `key`."""

    configmap: NotRequired[pulumi.Input[str]]
    """Name of a ConfigMap in the job's namespace; needs `key`."""

    key: NotRequired[pulumi.Input[str]]
    """Key inside the Secret or ConfigMap."""

    field: NotRequired[str]
    """Downward-API path such as `status.podIP`."""


class Workdir(TypedDict):
    """Code that the pods get beside the image, in a ConfigMap named by its digest: other files are other pods."""

    path: NotRequired[str]
    """The folder: relative to the job file, and in a program to the program's folder. Caches, `.git`, `.venv`, and the files that declare jobs are left out. What looks like a secret is refused, and so are links out of the folder."""

    mount_path: NotRequired[str]
    """Where the files are in the container. It is the working directory unless `working_dir` is set, and is searched for modules before the image's PYTHONPATH."""

    exclude: NotRequired[list[str]]
    """What else is left out: a pattern such as `*.ipynb` or `data` goes by the name of any file or folder, one with a `/`, such as `tests/big/*`, by the path from the folder."""

    files: NotRequired[dict[str, str]]
    """The files by their relative path, each in base64, where a program reads them itself; then `path` is not read. Files that begin with `#!` can be executed."""


class RdzvConfigs(TypedDict):
    """Time budgets of a rendezvous round (torchrun's `--rdzv-conf`)."""

    timeout: NotRequired[int]
    """Seconds for a whole rendezvous with the `static` and `etcd` backends. 900 as in Flyte, for slow image pulls."""

    join_timeout: NotRequired[int]
    """Seconds a node waits for the minimum of nodes, and for a store that does not answer. 900 as in Flyte; a node that cannot join by then exits 200, which the operator retries."""

    last_call_timeout: NotRequired[int]
    """Seconds a round stays open after the minimum has joined. torch's 30 runs in full whenever fewer than the maximum of nodes come, so the default is short: late nodes join the next round at little cost."""


class Elastic(TypedDict):
    """Nodes, processes and rendezvous of the job."""

    nnodes: NotRequired[str]
    """Number of nodes (`4`), or a range (`"2:4"`) in which training goes on while nodes come and go. 1 as in Flyte."""

    node_unit: NotRequired[int]
    """Nodes train in multiples of this number, and a node beyond the last whole multiple waits. The minimum, the initial number and the maximum are multiples, and the autoscaler adds whole multiples. 1: any number."""

    world_sizes: NotRequired[list[int]]
    """Numbers of workers that the script can use, such as `[8, 16, 32]`; nodes beyond the largest that can be made up wait. Empty: any. A script that fails to start with one number on two nodes, having trained with another, is not given that number again."""

    initial_nodes: NotRequired[int]
    """Nodes the job is created with. Default: the maximum, as in Flyte; the minimum when autoscaling is on, or `placement.kueue.mode` is `elastic`. Given, and without autoscaling or such a mode, it is the job's size as long as it stands: a change of it restarts the job, and `up` takes any other size back (of a TrainJob, whose size no object of the stack holds, it leaves another one). Left out, `elastic-infra scale` moves the job within `nnodes`, and Pulumi leaves its size alone."""

    elastic_job_set: NotRequired[bool]
    """The number of nodes of a TrainJob moves within `nnodes`, through the JobSet that Trainer makes of it: by `elastic-infra scale`, or with `autoscaling.policy: capacity`. JobSet allows that only where its alpha feature gate `ElasticJobSet` is on, which is off by default and which `elastic-infra check` looks for. Only for target 'trainjob'; without it a TrainJob keeps the maximum of nodes."""

    nproc_per_node: NotRequired[str]
    """Worker processes on each node. `auto` is the GPU count, or 1 without GPUs (torch's own `auto` would count the cluster node's cores)."""

    rdzv_backend: NotRequired[str]
    """The store where nodes meet. `c10d` is the launcher's own store. With the etcd backends, which need `rdzv_endpoint`, torchrun itself runs the job, and `elastic-infra explain` lists the features that are missing then."""

    rdzv_endpoint: NotRequired[pulumi.Input[str]]
    """`host:port` of an etcd server. Refused with `c10d`, since `rendezvous` gives the endpoint of that backend."""

    rdzv_id: NotRequired[pulumi.Input[str]]
    """Name of the run in the store. Default `<name>-<hash of the workload>`: a changed job never meets the old one. A value that is known late (a Pulumi `Output`) has no part in the hash: where only such a value changes, `up` makes the store anew with the job. Where the value is a secret, or the store an etcd server, the store stays: change `run_policy.rerun` as well, or the job may meet the old one."""

    rdzv_configs: NotRequired[RdzvConfigs]
    """Time budgets of a round."""

    max_restarts: NotRequired[int]
    """Restarts of the worker group that failures may cost, over the whole job; a membership change costs none. 3 as in flyte-sdk."""

    monitor_interval: NotRequired[float]
    """Seconds between the agent's looks at its workers. Exits are seen at once for any value; 3 as in flyte-sdk."""

    start_method: NotRequired[str]
    """How function entrypoints start their processes. Only `spawn` is safe with CUDA."""


class Runtime(TypedDict):
    """Defaults that the launcher applies inside each container; a variable set in `env` always wins."""

    nccl_collective_timeout_sec: NotRequired[int]
    """Seconds a collective may take before its process group fails. Unset leaves torch's own: NCCL 600, gloo 1800."""

    nccl_heartbeat_timeout_sec: NotRequired[int]
    """Seconds without a beat of NCCL's monitored thread before the process is ended (torch: 480). 300 as in flyte-sdk."""

    nccl_async_error_handling: NotRequired[int]
    """c10d's error mode. Unset means 3 (no abort that may hang), c10d's own default; torchrun alone forces 1."""

    nccl_enable_monitoring: NotRequired[bool]
    """Whether NCCL's watchdog thread is itself watched, as torch does."""

    omp_num_threads: NotRequired[int]
    """OpenMP threads of each worker. Unset means 1 when a node runs more than one worker, as torchrun does."""

    shutdown_grace_seconds: NotRequired[int]
    """Seconds from SIGTERM to SIGKILL for a worker; at most `disruption.termination_grace_period_seconds` minus 5."""

    failure_grace_seconds: NotRequired[int]
    """Seconds from SIGTERM to SIGKILL when a peer failed. Unset means `shutdown_grace_seconds`, and 5 when a peer is lost."""

    hang_timeout_seconds: NotRequired[str]
    """Seconds without a reported step that count as a hang. `auto` is max(5 x p99 step interval, 600); `off` never."""

    startup_window_seconds: NotRequired[int]
    """A failure within so many seconds of the start is a start-up failure, which is tried twice. 0 turns the rule off, as in torchrun."""

    startup_wait_seconds: NotRequired[int]
    """Seconds the first round waits for `initial_nodes`, so that late image pulls do not cost a restart each."""

    startup_patience_seconds: NotRequired[int]
    """Seconds newcomers wait for workers that have not made their first step, so that nodes that trickle in do not end every start. Unset means three times the longest start seen, 30 at least, and 600 while none was seen."""

    warm_start: NotRequired[bool]
    """Keep a parent process that has imported torch: a restart forks its workers, which share the import's memory."""

    log_level: NotRequired[str]
    """Level of the launcher's log lines; torchrun's default."""


class Gpu(TypedDict):
    """Accelerators of each node."""

    count: int
    """Devices a node."""

    vendor: NotRequired[str]
    """Vendor of the device plugin, which gives the resource's name. `google` are TPUs. `neuron` are the devices of AWS, each of which has several cores: set `elastic.nproc_per_node` to the cores of a node. Jobs on these two are untried."""

    resource: NotRequired[str]
    """Extended resource in place of the vendor's, such as `nvidia.com/mig-1g.10gb`."""


class Rdma(TypedDict):
    """Network devices with direct access to memory (InfiniBand, RoCE, EFA)."""

    resource: str
    """Extended resource of the device plugin, such as `rdma/hca_shared_devices_a` or `vpc.amazonaws.com/efa`."""

    count: NotRequired[int]
    """Devices a node."""


class Hugepages(TypedDict):
    """Memory in large pages, which cluster nodes set aside at their start; EFA needs some."""

    amount: str
    """Memory in such pages a node, a multiple of the page size; it is not part of `memory`."""

    page_size: NotRequired[str]
    """Size of a page. 2Mi is what most clusters have."""


class ResourceClaim(TypedDict):
    """Devices by Dynamic Resource Allocation: each node gets a claim made of a template."""

    name: str
    """Name of the claim in the pod."""

    template: str
    """A ResourceClaimTemplate in the job's namespace."""


class Resources(TypedDict):
    """Request and limit of the training container (equal, so that no node is evicted for exceeding its request)."""

    cpu: NotRequired[str]
    """CPUs a node. Needed by a `cpu` metric."""

    memory: NotRequired[str]
    """Memory a node, shared memory included: bytes written to /dev/shm count."""

    ephemeral_storage: NotRequired[str]
    """Local disk a node."""

    gpu: NotRequired[Gpu]
    """Accelerators a node; a plain number means that many NVIDIA GPUs."""

    rdma: NotRequired[Rdma]
    """RDMA devices a node. The container gets the capability IPC_LOCK, which no Pod Security profile but `privileged` allows: needs `security.profile: baseline`, and a namespace that enforces no profile."""

    hugepages: NotRequired[Hugepages]
    """Large pages a node. Needs `cpu` or `memory` as well."""

    claims: NotRequired[list[ResourceClaim]]
    """Devices by Dynamic Resource Allocation, which needs Kubernetes 1.34, and for a PyTorchJob the training operator 1.9. What a claim holds is not known here: set `elastic.nproc_per_node` where a node has several GPUs by a claim, and note that budgets of policies do not count them."""


class SharedMemory(TypedDict):
    """The volume at /dev/shm, which data loaders and NCCL use; without a volume a container has 64 MiB."""

    enabled: NotRequired[bool]
    """Mount a memory-backed volume; `true` or `false` in place of the mapping means this."""

    size: NotRequired[str]
    """The volume's limit; writing beyond it gives ENOSPC. Unset: the kubelet bounds it by the memory limit, as Flyte does."""


class RendezvousResources(TypedDict):
    """Request and limit of the store pod."""

    cpu: NotRequired[str]
    """CPU of the store pod; it answers small messages only."""

    memory: NotRequired[str]
    """Memory of the store pod. The default is enough for some 3,800 nodes: a node takes up to 64 KiB, most of it in the kernel, for what it has not read yet."""


class Toleration(TypedDict):
    """A taint that pods accept."""

    key: NotRequired[str]
    """The taint's key; unset (with `Exists`) tolerates every taint."""

    operator: NotRequired[str]
    """`Equal` compares `value`."""

    value: NotRequired[str]
    """The taint's value, for `Equal`."""

    effect: NotRequired[str]
    """The tolerated effect; unset means all."""

    toleration_seconds: NotRequired[int]
    """Seconds for which a `NoExecute` taint is tolerated."""


class Rendezvous(TypedDict):
    """Where the rendezvous store lives. Only for the `c10d` backend."""

    host: NotRequired[str]
    """`dedicated`: a small pod for the store alone, so that no training node is special; default when `nnodes` is a range. `worker0`: on the first node, as with torchrun; default otherwise."""

    port: NotRequired[int]
    """TCP port of the store. 29400 is torchrun's."""

    image: NotRequired[pulumi.Input[str]]
    """Image of the store pod, which needs only python3. Default: the job's image."""

    resources: NotRequired[RendezvousResources]
    """Request and limit of the store pod."""

    node_selector: NotRequired[dict[str, str]]
    """Labels that the cluster node of the store pod must have. `placement` is for the training nodes alone, so that the store is on none of their GPUs; where all cluster nodes are of its kind, repeat it here."""

    tolerations: NotRequired[list[Toleration]]
    """Taints that the store pod accepts, besides 30 s for a cluster node that is not ready."""


class Metric(TypedDict):
    """One metric that the autoscaler follows."""

    type: str
    """`cpu` and `memory`: per cent of the request; `pods`: a metric of the pods; `external`: one from outside."""

    target: str
    """Per cent for `cpu` and `memory` (a whole number); the average value a node for the others (a quantity)."""

    name: NotRequired[str]
    """The metric's name; for `pods` and `external`."""

    selector: NotRequired[dict[str, str]]
    """Labels that pick the series; for `pods` and `external`."""


class ScalingRules(TypedDict):
    """The speed limits of one direction."""

    nodes: int
    """At most this many nodes in each period."""

    period_seconds: int
    """Length of a period in seconds (Kubernetes allows up to 1800)."""

    stabilization_window_seconds: int
    """Seconds over which the strongest recommendation holds (Kubernetes allows up to 3600)."""


class Behavior(TypedDict):
    """Speed limits. Every change of size costs training time, so shrinking is slow by default."""

    scale_up: NotRequired[ScalingRules]
    """Limits for adding nodes. Default: 4 nodes a minute, after a minute of need; the launcher admits newcomers in batches of 30 s."""

    scale_down: NotRequired[ScalingRules]
    """Limits for removing nodes. Default: one node in 5 minutes, after 10 minutes without need, since each removal costs training time."""


class Autoscaling(TypedDict):
    """What moves the number of nodes; its bounds come from `elastic.nnodes`."""

    policy: NotRequired[str]
    """`metrics`: a HorizontalPodAutoscaler follows `metrics`. `capacity`: the job grows while the cluster has room for one more pod, and gives a node up to a pod of its namespace that waits for room and has no lower priority. A container in the store's pod does so, with a token and a Role of its own."""

    probe_seconds: NotRequired[int]
    """Seconds that an added pod may wait for a place before it is taken back (only with `policy: capacity`; 60 by default). The job waits twice as long before it asks again, then longer each time, up to 32 times. Longer where an autoscaler of cluster nodes shall have the time to add one."""

    owner: NotRequired[str]
    """The autoscaler's maker. `component`: an HPA made by this package, with `behavior`. `operator`: the training operator makes it from `elasticPolicy.metrics`. Never both: two autoscalers on one job stop each other."""

    metrics: NotRequired[list[Metric]]
    """Metrics to follow; the largest recommendation wins. At least one with `policy: metrics`, none with `capacity`."""

    behavior: NotRequired[Behavior]
    """Speed limits (only with `owner: component`; the operator's autoscaler has none)."""


class Initializer(TypedDict):
    """One init container that fills a folder before the training starts."""

    name: str
    """Name of the init container, and of the folder's volume where the folder is in no mount."""

    kind: str
    """Where from. `huggingface` needs the package `huggingface_hub` in the image; `s3` the program `aws`, or the package `s3fs`; `git` the program. `command` runs `command`."""

    source: NotRequired[str]
    """What to fetch: `org/model` of the Hugging Face Hub, `s3://bucket/folder`, or the address of a git repository."""

    revision: NotRequired[str]
    """Commit, tag or branch of `huggingface` and `git`. What is there already is not fetched again because a branch has moved, so name a commit."""

    repository: NotRequired[str]
    """Kind of repository of the Hugging Face Hub."""

    command: NotRequired[list[str]]
    """Program of the kind `command`: it fills its working directory."""

    path: str
    """The folder, which the training sees as well. Inside a mount of `storage` it is a cache: one pod fills it, the others wait, and what is there stays for the next pods and jobs. Elsewhere each pod has a folder of its own."""

    image: NotRequired[pulumi.Input[str]]
    """Image with python3 and what the kind needs; the job's by default."""

    env: NotRequired[dict[str, EnvVar]]
    """Variables of the init container, such as `HF_TOKEN: {secret: hf, key: token}`."""

    attempts: NotRequired[int]
    """How often to try, with pauses from 2 s that double, up to a minute."""


class HealthCheck(TypedDict):
    """A look at the cluster node by an init container; where the node is not fit, the pod is made anew."""

    gpus: NotRequired[bool]
    """Compare the number of GPUs that torch can use with `resources.gpu.count`, and compute on each of them. NVIDIA, AMD and Intel, without a `resource` of one's own; needs torch in the image."""

    nccl: NotRequired[bool]
    """Add up 16 MiB over all GPUs of the node by NCCL (RCCL), which finds a broken link between them. NVIDIA and AMD, with two GPUs or more. It costs the seconds that NCCL needs to start."""

    disk: NotRequired[str]
    """Least free space of the checkpoint volume, and of the cluster node's disk behind HOME. Both are written to in any case, so a volume that refuses writes is found."""

    timeout_seconds: NotRequired[int]
    """Seconds for the whole check: a driver or a file system that hangs is a fault of the node. 300, because the first import of torch out of a fresh image takes long."""


class SchedulingPolicy(TypedDict):
    """The operator's gang settings; ignored unless the operator runs with a gang scheduler."""

    min_available: NotRequired[int]
    """Pods that must be schedulable together. Default `min_nodes`, so that a scale-up never waits for a full gang."""

    queue: NotRequired[str]
    """Volcano queue. Cannot be changed on a live job, so a change restarts it."""

    priority_class: NotRequired[str]
    """Priority class of the gang."""

    schedule_timeout_seconds: NotRequired[int]
    """Seconds a gang may wait (scheduler-plugins only)."""


class RunPolicy(TypedDict):
    """Life and end of the job."""

    clean_pod_policy: NotRequired[str]
    """Pods deleted when the job ends. `Running` frees GPUs and keeps finished pods for their logs; the operator's own default keeps running pods alive."""

    ttl_seconds_after_finished: NotRequired[int]
    """Delete the finished job after so many seconds. Unset, because the next `pulumi refresh` and `up` would train again. A job that has failed under `restart_policy: ExitCode` stays, because the operator records no completion time for it."""

    active_deadline_seconds: NotRequired[int]
    """End the job after so many seconds. The operator checks only at other events (kubeflow/trainer#3358)."""

    backoff_limit: NotRequired[int]
    """Container restarts in place, summed over all pods, that fail the job. Default 3 for each of the most nodes; -1 means no limit; 0 fails at the first. Pods that are recreated (`restart_policy: ExitCode`) are not counted. Of a batch/v1 Job: failed pods, which are recreated; pods that the cluster takes away are not counted."""

    suspend: NotRequired[bool]
    """Hold the job without pods. Unset leaves the field to other controllers (a queue)."""

    scheduling_policy: NotRequired[SchedulingPolicy]
    """Gang settings of the operator."""

    managed_by: NotRequired[str]
    """Controller that reconciles the job; a change restarts it."""

    restart_policy: NotRequired[str]
    """What follows when a pod's container fails. Default `ExitCode`; `OnFailure` with the etcd backends, since torchrun exits with 1 for any failure. `ExitCode`: the operator fails the job at once for exit codes below 128, where a retry cannot help, and recreates the pod for others: three nodes free their GPUs 3 s after exit 1, and are whole again 4 s after exit 200. Its cost: a new pod has to be scheduled, and one that cannot run (an image without Python) is recreated without a pause and without a bound (kubeflow/trainer#2045); `ttl_seconds_after_finished` deletes no job that has failed. `OnFailure`: the kubelet restarts the container in place after any code: whole again 1 s after exit 200, but the GPUs are held for 56 s after exit 1, until `backoff_limit` is reached. The figures are measured by `benchmarks.cluster.restart_policy`."""

    rerun: NotRequired[str]
    """Any text; changing it runs a finished job again (and restarts a running one)."""

    on_restart: NotRequired[str]
    """What `pulumi up` does with a change that cannot be rolled out in place: `replace` restarts the job from its checkpoint; `refuse` fails with the cause and does not touch the job."""


class Kueue(TypedDict):
    """How Kueue admits a job, and in which order."""

    mode: NotRequired[str]
    """How many nodes get quota. `whole` (default, as Kueue's own): all with which the job begins, or none. `partial`: as many as there is quota for, from the minimum of `elastic.nnodes` on; the number stays until the job is admitted again. `elastic`: the job begins with the minimum, and `elastic-infra scale` or `autoscaling.policy: capacity` moves it, as far as there is quota, while the nodes that it has train. The latter two need `target: job` with a range, and exclude each other: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/job/job_webhook.go"""

    priority_class: NotRequired[str]
    """Kueue's WorkloadPriorityClass: the order in the queue, and which job gives way to which. It says nothing about pods once they are admitted. Default: the order of `placement.priority_class`."""


class Gang(TypedDict):
    """The minimum of `elastic.nnodes` gets its pods together or not at all; nodes beyond it come one by one."""

    scheduler: str
    """`coscheduling` of Kubernetes' scheduler-plugins, `volcano`, or `kai`: a second scheduler of the cluster. Pods ask for it by the name that it has unless it was given another: `scheduler-plugins-scheduler`, `volcano` or `kai-scheduler`. `placement.scheduler_name` has precedence."""

    queue: NotRequired[str]
    """Queue of Volcano (default: its `default`) or of KAI, which needs one. Not Kueue's, which is `placement.queue`."""

    timeout_seconds: NotRequired[int]
    """Seconds that pods of the gang hold room for the others, with `coscheduling`. Default: the scheduler's own, 60."""


class TopologySpread(TypedDict):
    """Spread pods over a topology (training usually packs; use it for availability)."""

    topology_key: str
    """Label of cluster nodes that names the domain, such as `topology.kubernetes.io/zone`."""

    max_skew: NotRequired[int]
    """Largest difference of pods between domains."""

    when_unsatisfiable: NotRequired[str]
    """Whether a pod waits or starts anyway when the spread cannot be met."""


class TopologyPack(TypedDict):
    """Keep pods together in one domain of the cluster, such as a rack or a zone, for a faster network."""

    topology_key: str
    """Label of cluster nodes that names the domain, such as `topology.kubernetes.io/zone`."""

    required: NotRequired[bool]
    """Whether a pod waits where the domain of the others has no room. False: it goes elsewhere. With true a replacement waits as well, until the domain has room again."""


class Affinity(TypedDict):
    """Affinity rules, verbatim as Kubernetes spells them (camelCase); the API server checks the content."""

    nodeAffinity: NotRequired[dict[str, Any]]
    """Rules on cluster nodes."""

    podAffinity: NotRequired[dict[str, Any]]
    """Rules that attract pods to each other."""

    podAntiAffinity: NotRequired[dict[str, Any]]
    """Rules that keep pods apart."""


class Placement(TypedDict):
    """Scheduling of the job's pods."""

    queue: NotRequired[str]
    """Kueue queue: sets the label `kueue.x-k8s.io/queue-name`. Excludes autoscaling, which knows nothing of the queue's quota, except for `policy: capacity` with `kueue.mode: elastic`. A change of it restarts the job."""

    kueue: NotRequired[Kueue]
    """How Kueue admits the job of `queue`; a change of it restarts the job."""

    gang: NotRequired[Gang]
    """Schedule the minimum of nodes together or not at all, by a scheduler that can. Seldom needed: training begins with the minimum, and nodes beyond it wait for nothing."""

    priority_class: NotRequired[str]
    """Priority class of the pods."""

    node_selector: NotRequired[dict[str, str]]
    """Labels that a cluster node must have."""

    tolerations: NotRequired[list[Toleration]]
    """Taints that pods accept, besides 60 s for a cluster node that is not ready (Kubernetes' own is 300 s)."""

    topology_spread: NotRequired[list[TopologySpread]]
    """Spread over zones or hosts."""

    topology_pack: NotRequired[TopologyPack]
    """Keep the pods together in a zone, a rack or whatever a label of cluster nodes names. Without `queue` by a pod affinity to the job's own pods, which excludes `affinity.podAffinity`; with `queue` Kueue does, which then needs a queue with a Topology: https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/"""

    spot: NotRequired[str]
    """Spot nodes of GKE, EKS, AKS and Karpenter, which cost less and may be taken away. `allowed`: their taints are tolerated. `preferred` and `required`: by a node affinity as well, which excludes `affinity.nodeAffinity`. The store's pod tolerates none of them. Unset: the pods know nothing of spot nodes."""

    avoid_bad_nodes: NotRequired[bool]
    """Keep the pods away from a cluster node on which the workers failed again and again while the other nodes were healthy: a small pod is put there, which a pod anti-affinity of the job's pods avoids, until the job ends. At most four cluster nodes. A container in the store's pod does so, with a token and a Role of its own. Off, because that Role may create any pod in the namespace. Excludes `affinity.podAntiAffinity`."""

    affinity: NotRequired[Affinity]
    """Affinity rules, verbatim."""

    scheduler_name: NotRequired[str]
    """Scheduler in place of the default one, or of that of `gang`."""


class Disruption(TypedDict):
    """What may end a pod, and how much time it has then."""

    pod_disruption_budget: NotRequired[bool]
    """Keep at least `min_nodes` during voluntary disruptions. Off: it can block the drain of a cluster node."""

    safe_to_evict: NotRequired[bool]
    """Whether autoscalers of cluster nodes may move the pods. False, as Flyte: moving a node costs training time."""

    termination_grace_period_seconds: NotRequired[int]
    """Seconds from SIGTERM to SIGKILL for a pod: the time to save a checkpoint on preemption."""


class Security(TypedDict):
    """The user, the service account and the security profile of the pods."""

    profile: NotRequired[str]
    """Pod Security profile that the pods satisfy. https://kubernetes.io/docs/concepts/security/pod-security-standards/"""

    service_account: NotRequired[pulumi.Input[str]]
    """Service account of the pods; its token is not mounted. Unset: the namespace's `default`."""

    own_service_account: NotRequired[bool]
    """Make a ServiceAccount for this job, named like it, that no pod gets a token of: rights, secrets and cloud identities that somebody gives to `default` are not the job's then. Excludes `service_account`. Off, because `pulumi up` needs rights on ServiceAccounts for it, and `default` may have the registry's secrets."""

    run_as_user: NotRequired[int]
    """User, group and volume group. Needs no entry in the image's passwd file: HOME and the caches of torch and Triton are on a writable volume. 0 only with `baseline`."""

    read_only_root: NotRequired[bool]
    """Mount the image read-only; /tmp and HOME stay writable."""

    network_policy: NotRequired[bool]
    """Make a NetworkPolicy that lets in the job's own pods on all ports, anyone on `launcher.metrics_port`, and no other traffic; what goes out stays as it is. On, because no password closes the ports at which workers meet. Off is for an account without a right for this kind. A job on its machines' network has none, since a policy knows the nodes of such a job by no label."""


class Checkpoint(TypedDict):
    """The volume for checkpoints, which survives nodes: without it a restart begins at step 0."""

    claim: NotRequired[pulumi.Input[str]]
    """An existing PersistentVolumeClaim, which outlives the stack."""

    size: NotRequired[str]
    """Make a claim of this size. `pulumi up` never deletes it, and refuses to change it: the claim stays in the cluster when the job is removed, and when `checkpoint` is removed or names another `claim`. A new job names the remaining claim in `claim`. For more room, expand the claim in the cluster and leave this field as it is."""

    storage_class: NotRequired[pulumi.Input[str]]
    """Storage class of the made claim. `pulumi up` refuses to change it."""

    access_mode: NotRequired[str]
    """Access mode of the made claim; `pulumi up` refuses to change it. Default `ReadWriteMany` when there can be more than one node, so a job that may grow from one node must set it from the start."""

    mount_path: NotRequired[str]
    """Path in the container; the script gets it as `ELASTIC_INFRA_CHECKPOINT_DIR`."""


class Volume(TypedDict):
    """A volume of the pods: exactly one source."""

    name: str
    """The volume's name, for `mounts`."""

    claim: NotRequired[pulumi.Input[str]]
    """An existing PersistentVolumeClaim."""

    secret: NotRequired[pulumi.Input[str]]
    """A Secret, as files."""

    configmap: NotRequired[pulumi.Input[str]]
    """A ConfigMap, as files."""

    empty_dir: NotRequired[str]
    """Scratch space of at most this size on the cluster node's disk."""

    host_path: NotRequired[str]
    """A folder of the cluster node; needs the `baseline` profile to be lifted by the namespace as well."""


class Mount(TypedDict):
    """A volume's place in the container."""

    volume: str
    """Name of a volume of `storage.volumes`."""

    mount_path: str
    """Path in the container."""

    sub_path: NotRequired[str]
    """A path inside the volume."""

    read_only: NotRequired[bool]
    """Whether the mount refuses writes."""


class Storage(TypedDict):
    """Volumes of the pods."""

    checkpoint: NotRequired[Checkpoint]
    """The volume for checkpoints."""

    volumes: NotRequired[list[Volume]]
    """Further volumes."""

    mounts: NotRequired[list[Mount]]
    """Mounts of these volumes in the container."""


class Webhook(TypedDict):
    """Where the message of the job's end goes: a URL in a Secret."""

    secret: pulumi.Input[str]
    """Name of a Secret in the job's namespace. Without it, or without the key, the pods start all the same and nothing is sent."""

    key: NotRequired[pulumi.Input[str]]
    """Key inside the Secret that holds the URL, `http://` or `https://`."""


class Launcher(TypedDict):
    """How the launcher gets into the container, and its telemetry."""

    delivery: NotRequired[str]
    """`configmap` mounts the launcher into any image with python3; `image` expects `elastic_infra` installed in it."""

    config_map: NotRequired[pulumi.Input[str]]
    """A ConfigMap in the job's namespace that has the launcher, such as an `ElasticLauncher`'s `config_map`, shared by many jobs. Unset makes one for the job."""

    verify: NotRequired[bool]
    """Compare the mounted launcher with the SHA-256 in the pod's template at each start of a container, and run nothing of it where it is another. Needs a `config_map` whose name ends in that digest, as that of an `ElasticLauncher` with `verify` does. Off, because it protects only from those who may replace ConfigMaps in the namespace but not the job, and because turning it on restarts the job."""

    version: NotRequired[str]
    """Any text; a change of it takes the newest launcher, and restarts the job. Without that a job keeps its launcher until something else restarts it."""

    events: NotRequired[str]
    """File for event lines: a path, or `-` for the container's stderr. Empty writes none."""

    metrics_port: NotRequired[int]
    """Port of `/metrics`, `/healthz` and `/status`. Unset: the launcher listens on no port."""

    webhook: NotRequired[Webhook]
    """URL that gets one JSON message when the job has succeeded or failed for good. What cannot be delivered in 12 s is given up and never changes how the job ends. Unset sends none."""

    kubernetes_events: NotRequired[bool]
    """Make Kubernetes Events about the job: one for each failure that ends a generation, for a node that is left out, and for the end. A container in the store's pod does so, with a token and a Role of its own. Off, because the right to create Events is one for the whole namespace."""


class Overlays(TypedDict):
    """Patches of the rendered objects, merged as `kubectl patch` merges."""

    pod: NotRequired[dict[str, Any]]
    """Patch of the template of every training pod (core/v1 PodTemplateSpec, verbatim): mappings are merged by key, lists by Kubernetes' own keys, null deletes. The training container is `pytorch`, also where a TrainJob's pod calls the container `node`. Identity cannot be overlaid. A change restarts the job, as any change of its pods."""


class ElasticTrainingJobArgs(TypedDict):
    """One elastic training job. Only `image` and one of `script`, `module`, `command` are required."""

    name: NotRequired[str]
    """Name of the job in Kubernetes. Default: that of the Pulumi resource, or of the file. With the old name given here the Pulumi resource can be renamed without a change in the cluster; a new name is a new job."""

    image: pulumi.Input[str]
    """Container image with python3 and torch. Pin the image by digest, since pods are recreated for weeks."""

    image_pull_policy: NotRequired[str]
    """When the kubelet pulls the image."""

    image_pull_secrets: NotRequired[list[pulumi.Input[str]]]
    """Names of Secrets with registry credentials."""

    namespace: NotRequired[pulumi.Input[str]]
    """Namespace of every object; it must exist."""

    script: NotRequired[str]
    """Training script, a path in the container."""

    module: NotRequired[str]
    """Training module, run as `python -m`."""

    command: NotRequired[list[pulumi.Input[str]]]
    """Program that is not Python, run once for each worker (torchrun's `--no-python`)."""

    args: NotRequired[list[pulumi.Input[str]]]
    """Arguments of the script, module or command."""

    env: NotRequired[dict[str, EnvVar]]
    """Variables of the training container, in order: name to value, or to a secret, configmap or field reference."""

    working_dir: NotRequired[str]
    """Working directory; the image's when unset, or that of `workdir`."""

    workdir: NotRequired[Workdir]
    """Local code that the pods get without a build of the image: `./src`, or `{path: ./src, exclude: [...]}`."""

    labels: NotRequired[dict[str, str]]
    """Labels of every object and pod."""

    annotations: NotRequired[dict[str, str]]
    """Annotations of every object and pod."""

    elastic: NotRequired[Elastic]
    """Nodes, processes, rendezvous."""

    runtime: NotRequired[Runtime]
    """Limits and defaults that the launcher applies in the container."""

    resources: NotRequired[Resources]
    """CPU, memory and devices of each node."""

    shared_memory: NotRequired[SharedMemory]
    """The volume at /dev/shm: `true` (default), `{size: 16Gi}` or `false`."""

    rendezvous: NotRequired[Rendezvous]
    """Place and resources of the rendezvous store."""

    autoscaling: NotRequired[Autoscaling]
    """Let an autoscaler choose the number of nodes within `elastic.nnodes`."""

    initializers: NotRequired[list[Initializer]]
    """Data and models that init containers fetch before the training starts, in this order."""

    health_check: NotRequired[HealthCheck]
    """Look at the cluster node before a pod trains there: `true`, or a mapping such as `{disk: 10Gi}`."""

    run_policy: NotRequired[RunPolicy]
    """Life and end of the job."""

    placement: NotRequired[Placement]
    """Scheduling of the pods."""

    disruption: NotRequired[Disruption]
    """Disruptions of pods, and the time that pods have then."""

    security: NotRequired[Security]
    """The user, the service account and the security profile of the pods."""

    storage: NotRequired[Storage]
    """Volumes."""

    launcher: NotRequired[Launcher]
    """How the launcher gets into the container, and its telemetry."""

    overlays: NotRequired[Overlays]
    """Patches for fields of Kubernetes that this config lacks."""

    target: NotRequired[str]
    """Workload object. `auto`: one node is a batch/v1 Job (retried when its cluster node is lost), more are a PyTorchJob, which needs the training operator. `job`: a batch/v1 Job for any number of nodes, an Indexed one where there are several; it needs no operator, but Kubernetes 1.31. `trainjob`: a TrainJob with a runtime of its own; it needs Kubeflow Trainer 2.3, its size is the maximum of nodes unless `elastic.elastic_job_set` is on, and training runs with the nodes that have come."""

    children: NotRequired[str]
    """The base of the names of the component's children in Pulumi. `name`: the job's name, so that renaming the Pulumi resource with `name` kept touches no Kubernetes object. `resource`: the Pulumi resource, where two jobs of one stack share a name in two namespaces. A change from `name` to `resource` makes every object of the job anew, and does not get past one that is there."""

    adopted: NotRequired[bool]
    """Take over the live job of this name and kind that something else made, without a restart: Pulumi imports its workload object, and nothing else of the config reaches the cluster. Once the key is gone the job is made anew as the config has it."""

    wait_for: NotRequired[str]
    """The condition for which `pulumi up` waits. `none` by default, because a queue for GPUs can take hours."""

    wait_timeout_seconds: NotRequired[int]
    """Seconds that `pulumi up` waits before it gives up (the job goes on)."""
