"""The program `elastic-infra`: documents on stdout, everything else on stderr, 0 or 2."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hypothesis
import jsonschema
import pytest
import yaml
from hypothesis import strategies as st

from elastic_infra import JobConfig, __version__, render
from elastic_infra.cli import documents
from elastic_infra.cli.app import COMMANDS, INTERRUPTED
from elastic_infra.cli.documents import text
from elastic_infra.manifests import launcher
from tests.cli import Result, elastic_infra

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "examples/quickstart/job.yaml"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """A valid job without warnings."""
    file = tmp_path / "train.yaml"
    file.write_text("{image: i, script: s, resources: {memory: 1Gi}, storage: {checkpoint: {claim: c}}}")
    return file


class TestRender:
    def test_prints_what_the_api_server_gets(self) -> None:
        """The YAML stream holds the rendered objects, in order, with the launcher's archive, without a Secret."""
        result = elastic_infra("render", QUICKSTART)
        objects = render("quickstart", config(QUICKSTART)).objects()
        expected = [manifest for role, manifest in objects if role != "token"]

        assert result.code == 0
        assert list(yaml.safe_load_all(result.out)) == expected

    def test_short_leaves_out_the_archive_only(self) -> None:
        """For readers: the ConfigMap stays, its archive goes."""
        full = list(yaml.safe_load_all(elastic_infra("render", QUICKSTART).out))
        short = list(yaml.safe_load_all(elastic_infra("render", QUICKSTART, "--short").out))
        del full[0]["binaryData"]

        assert short == full

    def test_warnings_go_to_stderr(self, tmp_path: Path) -> None:
        """What surprises is said beside the document, never in it."""
        file = tmp_path / "train.yaml"
        file.write_text("{image: i, script: s}")
        result = elastic_infra("render", file)

        assert result.code == 0
        assert "warning" not in result.out
        assert f"{file}: warning: storage.checkpoint: " in result.err

    @pytest.mark.parametrize(
        ("path", "content", "options", "name"),
        [
            ("train.yaml", "", [], "train"),
            ("llm.job.yaml", "", [], "llm"),
            ("llm/job.yaml", "", [], "llm"),
            ("llm/job.json", "", [], "llm"),
            ("train.yaml", "name: own\n", [], "own"),
            ("train.yaml", "name: own\n", ["--name", "asked"], "asked"),
        ],
    )
    def test_name(self, tmp_path: Path, path: str, content: str, options: list[str], name: str) -> None:
        """The option wins over the file's name, that over the stem, and job.yaml is named after its folder."""
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{content}image: i\nscript: s\n")
        objects = list(yaml.safe_load_all(elastic_infra("render", file, *options).out))

        assert objects[-1]["metadata"]["name"] == name

    def test_target_is_checked_as_if_it_were_in_the_file(self, job_file: Path) -> None:
        """A target from the command line decides, and meets the same rules."""
        rendered = [elastic_infra("render", job_file, "--target", target) for target in ("pytorchjob", "job")]
        kinds = [{each["kind"] for each in yaml.safe_load_all(result.out)} for result in rendered]
        refused = elastic_infra("render", QUICKSTART, "--target", "job")

        assert ["PyTorchJob" in kinds[0], "Job" in kinds[1]] == [True, True]
        assert (refused.code, refused.out) == (2, "")
        assert f"{QUICKSTART}: autoscaling: " in refused.err


class TestRenderIntoAFolder:
    @pytest.fixture
    def jobs(self, tmp_path: Path) -> Path:
        """Two jobs and a file that is none."""
        folder = tmp_path / "jobs"
        (folder / "a").mkdir(parents=True)
        (folder / "a" / "job.yaml").write_text("{image: i, script: s}")
        (folder / "b.yaml").write_text("image: i\nscript: s\nelastic: {nnodes: '1:2'}\n")
        (folder / "values.yaml").write_text("replicas: 1\n")
        return folder

    def test_a_folder_is_every_job_in_it(self, jobs: Path, tmp_path: Path) -> None:
        """One file a job, named after the job; the stream without a folder holds the same objects."""
        out = tmp_path / "out" / "cluster"
        result = elastic_infra("render", jobs, "--into", out)
        written = sorted(path.name for path in out.iterdir())

        assert (result.code, result.out, written) == (0, "", ["a.yaml", "b.yaml"])
        assert elastic_infra("render", jobs).out == "".join((out / each).read_text() for each in written)

    def test_what_has_not_changed_is_not_written(self, jobs: Path, tmp_path: Path) -> None:
        """A second time nothing is written; after an edit only the job that was edited."""
        out = tmp_path / "out"
        first = elastic_infra("render", jobs, "--into", out).err
        second = elastic_infra("render", jobs, "--into", out).err
        (jobs / "b.yaml").write_text("image: j\nscript: s\nelastic: {nnodes: '1:2'}\n")
        third = elastic_infra("render", jobs, "--into", out).err

        assert [text.count("wrote ") for text in (first, second, third)] == [2, 0, 1]
        assert f"wrote {out / 'b.yaml'}" in third

    def test_one_fault_and_nothing_is_written(self, jobs: Path, tmp_path: Path) -> None:
        """Every fault of every file is said first; half a folder would be applied."""
        (jobs / "c.job.yaml").write_text("{image: i, script: s, elastic: {nnodes: 0}}")
        result = elastic_infra("render", jobs, "--into", tmp_path / "out")

        assert (result.code, result.out) == (2, "")
        assert f"{jobs / 'c.job.yaml'}: elastic.nnodes: " in result.err
        assert not (tmp_path / "out").exists()

    def test_two_jobs_of_one_name_are_refused(self, jobs: Path, tmp_path: Path) -> None:
        """Both would be the same file, and in one namespace the same object of the cluster."""
        (jobs / "c.job.yaml").write_text("{name: a, image: i, script: s}")
        refused = elastic_infra("render", jobs, "--into", tmp_path / "out")

        assert refused.code == 2
        assert f"{jobs / 'c.job.yaml'}: name: is that of {jobs / 'a' / 'job.yaml'} too" in refused.err

    def test_a_folder_without_jobs_is_refused(self, tmp_path: Path) -> None:
        """An empty result would be taken for success."""
        result = elastic_infra("render", tmp_path)

        assert result.code == 2
        assert "holds no job file" in result.err

    def test_a_folder_that_cannot_be_written_is_named(self, jobs: Path, tmp_path: Path) -> None:
        """No traceback: the path and the reason."""
        (tmp_path / "out").write_text("a file")
        result = elastic_infra("render", jobs, "--into", tmp_path / "out")

        assert result.code == 2
        assert f"{tmp_path / 'out' / 'a.yaml'}: cannot be written: " in result.err


class TestRenderKeepsALauncher:
    @pytest.fixture
    def into(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder with a job that an earlier version of this package rendered; the file of the job is beside it."""
        out = tmp_path / "out"
        (tmp_path / "train.yaml").write_text("{image: i, script: s, elastic: {nnodes: '2:4'}}")
        with monkeypatch.context() as earlier:
            earlier.setattr(launcher, "archive", lambda: b"earlier")
            elastic_infra("render", tmp_path / "train.yaml", "--into", out)
        return out

    @pytest.fixture
    def earlier(self, into: Path) -> str:
        """What the earlier version wrote."""
        return (into / "train.yaml").read_text()

    def render(self, into: Path, *options: str) -> tuple[str, Result]:
        """What the file is afterwards, and what was said."""
        result = elastic_infra("render", into.parent / "train.yaml", "--into", into, *options)
        return (into / "train.yaml").read_text(), result

    def test_an_upgrade_changes_no_file(self, into: Path, earlier: str) -> None:
        """And says that there is a newer one; without the option, the newest one is taken."""
        kept, result = self.render(into, "--keep-launcher")
        newest, _ = self.render(into)

        assert (result.code, kept) == (0, earlier)
        assert "keeps its launcher; a newer one is ready" in result.err
        assert launcher.digest() in newest

    @pytest.mark.parametrize(
        "change",
        [
            "image: other",
            "image: i\nlauncher: {version: '2'}",
            "image: i\nlauncher: {verify: true}",
            "image: i\nnamespace: o",
        ],
    )
    def test_a_restart_takes_the_newest(self, into: Path, change: str) -> None:
        """The job is made anew in any case, or was asked to be."""
        job = into.parent / "train.yaml"
        job.write_text(f"script: s\nelastic: {{nnodes: '2:4'}}\n{change}\n")
        written, result = self.render(into, "--keep-launcher")

        assert launcher.digest() in written
        assert "keeps its launcher" not in result.err

    def test_a_launcher_that_is_verified_is_kept_with_its_digest(self, into: Path) -> None:
        """An upgrade changes no file of a job with the option either."""
        job = into.parent / "train.yaml"
        job.write_text("{image: i, script: s, elastic: {nnodes: '2:4'}, launcher: {verify: true}}")
        with pytest.MonkeyPatch.context() as earlier:
            earlier.setattr(launcher, "archive", lambda: b"earlier")
            before, _ = self.render(into)
            digest = launcher.whole_digest()
        kept, result = self.render(into, "--keep-launcher")

        assert (kept, before.count(digest)) == (before, 5)
        assert "keeps its launcher; a newer one is ready" in result.err

    def test_what_restarts_nothing_is_taken_beside_the_kept_launcher(self, into: Path, earlier: str) -> None:
        """The launcher is kept for itself, not the whole file."""
        job = into.parent / "train.yaml"
        job.write_text("{image: i, script: s, elastic: {nnodes: '2:4'}, run_policy: {backoff_limit: 7}}")
        written, _ = self.render(into, "--keep-launcher")
        changed = [line for line in written.splitlines() if line not in earlier.splitlines()]

        assert changed == ["    backoffLimit: 7"]

    @pytest.mark.parametrize("content", ["", "{", "a: 1", "- [1]", "kind: ConfigMap\nmetadata: 1"])
    def test_a_file_that_is_no_rendered_job_is_written_anew(self, into: Path, content: str) -> None:
        """It has no launcher to keep."""
        (into / "train.yaml").write_text(content)
        written, result = self.render(into, "--keep-launcher")

        assert (result.code, launcher.digest() in written) == (0, True)

    def test_it_needs_a_folder(self, into: Path) -> None:
        """On stdout there is nothing to keep."""
        result = elastic_infra("render", into.parent / "train.yaml", "--keep-launcher")

        assert (result.code, result.out) == (2, "")
        assert "--keep-launcher needs --into" in result.err


class TestYaml:
    def test_both_dumpers_write_the_same(self) -> None:
        """With and without libyaml the text is the same, so that a stored file does not change with the machine."""
        objects = [manifest for _, manifest in render("quickstart", config(QUICKSTART)).objects()]

        class Pure(yaml.SafeDumper):
            ignore_aliases = documents._Dumper.ignore_aliases

        Pure.add_representer(str, documents._string)
        pure = yaml.dump_all(
            objects, Dumper=Pure, sort_keys=False, explicit_start=True, allow_unicode=True, width=2**31 - 1
        )

        assert text(render("quickstart", config(QUICKSTART))) == pure

    @pytest.mark.parametrize(
        "value",
        [
            "1e3",
            "0o7",
            "y",
            "N",
            "on",
            "1:30",
            "2020-01-01",
            "0x1F",
            ".5",
            "1_0",
            "+1",
            "=",
            "<<",
            "null",
            "~",
            "",
            "-",
            "1e+3",
            "12e03",
            ".inf",
        ],
    )
    def test_text_that_looks_like_something_else_is_quoted(self, value: str) -> None:
        """YAML 1.1 and 1.2 parsers disagree about these, so none is left plain."""
        line = yaml.dump([value], Dumper=documents._Dumper).strip()

        assert line == f"- '{value}'"

    @hypothesis.given(st.text(st.characters(exclude_categories=["Cs"])))
    def test_every_text_comes_back(self, value: str) -> None:
        """What is written is read back the same."""
        assert yaml.safe_load(yaml.dump([value], Dumper=documents._Dumper, allow_unicode=True)) == [value]


class TestValidate:
    def test_valid_files_say_nothing(self, job_file: Path) -> None:
        """Silence and 0 for what is right."""
        result = elastic_infra("validate", job_file, job_file)

        assert (result.code, result.out, result.err) == (0, "", "")

    def test_every_fault_of_every_file_is_a_line(self, job_file: Path, tmp_path: Path) -> None:
        """`FILE: path: reason` on stderr, exit 2, one broken file hiding neither another nor a second fault."""
        broken, missing = tmp_path / "broken.yaml", tmp_path / "missing.yaml"
        broken.write_text("{image: i, script: s, elastic: {nnodes: 0, max_restart: 1}}")
        result = elastic_infra("validate", broken, job_file, missing)
        starts = [line.rsplit(": ", 1)[0] for line in result.err.splitlines()]

        assert (result.code, result.out) == (2, "")
        assert starts[0] == f"{broken}: elastic.nnodes"
        assert f"{broken}: elastic.max_restart: " in result.err
        assert "Did you mean 'max_restarts'?" in result.err
        assert starts[-1].startswith(f"{missing}: cannot be read")

    def test_a_name_that_kubernetes_refuses_is_a_fault(self, tmp_path: Path) -> None:
        """The name comes from the file, so its faults belong to the file."""
        file = tmp_path / "My Job.yaml"
        file.write_text("{image: i, script: s}")
        result = elastic_infra("validate", file)

        assert result.code == 2
        assert f"{file}: name: must be lower-case letters" in result.err
        assert "the file's, for the job has no `name`" in result.err

    def test_a_folder_that_kubernetes_refuses_as_a_name_is_named(self, tmp_path: Path) -> None:
        """A reader who wrote no name is told where the refused one came from, by every command."""
        file = tmp_path / "My_Job" / "job.yaml"
        file.parent.mkdir()
        file.write_text("{image: i, script: s}")
        for command in ("validate", "render", "explain", "run"):
            result = elastic_infra(command, file)

            assert result.code == 2, command
            assert "The name is the folder's, for the job has no `name`: set one." in result.err, command


class TestSchema:
    def test_is_valid_and_whole(self) -> None:
        """Draft 2020-12, with a description on every field."""
        schema = json.loads(elastic_infra("schema").out)
        jsonschema.Draft202012Validator.check_schema(schema)
        parts = [schema, *schema["$defs"].values()]
        fields = [field for part in parts for field in part.get("properties", {}).values()]

        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert len(fields) > 100
        assert [field for field in fields if not field.get("description")] == []

    @pytest.mark.parametrize(
        "shorthand",
        [
            {"elastic": {"nnodes": 2}},
            {"elastic": {"nproc_per_node": 8}},
            {"env": {"A": "x", "B": 3, "C": {"secret": "s", "key": "k"}}},
            {"resources": {"gpu": 8, "cpu": 4}},
            {"resources": {"gpu": {"count": 8}, "cpu": "4"}},
            {"shared_memory": False},
            {"shared_memory": {"size": "1Gi"}},
            {"runtime": {"hang_timeout_seconds": 30}},
        ],
    )
    def test_knows_shorthands(self, shorthand: dict[str, Any]) -> None:
        """What the config takes, an editor takes."""
        job = {"image": "i", "script": "s", **shorthand}
        jsonschema.Draft202012Validator(json.loads(elastic_infra("schema").out)).validate(job)

        assert isinstance(JobConfig.from_mapping(job), JobConfig)

    @pytest.mark.parametrize("wrong", [{"imag": 1}, {"elastic": {"nnodes": []}}, {"launcher": {"metrics_port": 80}}])
    def test_refuses_what_the_config_refuses(self, wrong: dict[str, Any]) -> None:
        """Types, limits and unknown keys are seen in the editor already."""
        validator = jsonschema.Draft202012Validator(json.loads(elastic_infra("schema").out))

        assert not validator.is_valid({"image": "i", "script": "s", **wrong})


def queued(mode: str) -> dict[str, Any]:
    """A job in a queue of Kueue."""
    return {"placement": {"queue": "gpus", "kueue": {"mode": mode}}}


class TestExplain:
    def test_json_has_size_and_budgets(self) -> None:
        """Everything a program asks, as numbers."""
        result = elastic_infra("explain", QUICKSTART, "--format", "json")
        found = json.loads(result.out)
        budgets = {budget["name"]: budget for budget in found["budgets"]}

        assert (result.code, result.err) == (0, "")
        assert found["nodes"] == {"minimum": 2, "initial": 2, "maximum": 4}
        assert found["rendezvous"] == "quickstart-rdzv:29400"
        assert budgets["worst_case"]["seconds"] == (3 + 1) * (1800 + 300)
        assert budgets["worst_case"]["fields"][0] == "elastic.max_restarts"

    def test_table_has_the_same(self) -> None:
        """People read what programs read."""
        result = elastic_infra("explain", QUICKSTART)

        assert result.code == 0
        assert "2 to 4, 2 at first; our autoscaler changes it (cpu)" in result.out
        assert "2 h 20 min" in result.out
        assert "(max_restarts (3) + 1) * (collective (1800)" in result.out

    def test_what_comes_before_the_training_is_told(self, tmp_path: Path) -> None:
        """The check of the node, what is fetched and for whom, and how large the code is."""
        (tmp_path / "src").mkdir()
        (tmp_path / "src/train.py").write_text("pass\n")
        file = tmp_path / "job.yaml"
        file.write_text(
            "image: i\nscript: train.py\nworkdir: ./src\nhealth_check: {disk: 10Gi}\nresources: {gpu: 8}\n"
            "initializers: [{name: set, kind: s3, source: 's3://a/b', path: /data/set}]\n"
        )
        said = elastic_infra("explain", file, "--name", "j").out

        assert "8 GPUs, a sum over them by NCCL, 10Gi free in each volume, within 300 s" in said
        assert "set: s3 s3://a/b to /data/set, anew in each pod" in said
        assert "./src (1 file, 5 bytes, " in said

    def test_numbers_that_the_script_can_use(self, tmp_path: Path) -> None:
        """Units of nodes and numbers of workers stand where the range does."""
        file = tmp_path / "job.yaml"
        file.write_text(
            "image: i\nscript: s.py\nelastic: {nnodes: '2:4', node_unit: 2, nproc_per_node: 8, world_sizes: [16, 32]}\n"
        )
        said = elastic_infra("explain", file, "--name", "j").out

        assert "2 to 4, 4 at first, in multiples of 2" in said
        assert "(8 a node), of which only 16, 32 train" in said

    @pytest.mark.parametrize(
        ("fields", "owner", "said"),
        [
            ({"elastic": {"nnodes": 4}}, "config", "fixed"),
            ({"elastic": {"nnodes": "2:4", "initial_nodes": 3}}, "config", "the config's elastic.initial_nodes, which"),
            ({"target": "trainjob"}, "config", "the TrainJob asks for all"),
            ({"autoscaling": {"policy": "capacity"}}, "autoscaler", "grows into idle capacity"),
            ({"target": "job", **queued("partial")}, "queue", "Kueue sets it when it admits the job"),
            (
                {"target": "job", **queued("elastic"), "elastic": {"nnodes": "2:4", "initial_nodes": 3}},
                "scale",
                "elastic-infra scale changes it",
            ),
            ({}, "scale", "elastic-infra scale changes it"),
        ],
    )
    def test_who_sets_the_number_of_nodes(self, tmp_path: Path, fields: dict[str, Any], owner: str, said: str) -> None:
        """The one who does for `up` and for `scale`."""
        job = {"image": "i", "script": "s.py", "elastic": {"nnodes": "2:4"}, **fields}
        file = tmp_path / "job.yaml"
        file.write_text(json.dumps(job))
        found = json.loads(elastic_infra("explain", file, "--name", "j", "--format", "json").out)

        assert JobConfig.from_mapping(job).size_owner == owner
        assert found["scaled_by"].startswith(said)

    def test_restarts_of_containers_are_those_that_the_preview_names(self, tmp_path: Path) -> None:
        """Pods that are made anew restart no container; those of OnFailure are counted up to the limit."""
        file = tmp_path / "job.yaml"

        def said(more: str) -> str:
            file.write_text(f"image: i\nscript: s.py\nelastic: {{nnodes: 2}}\n{more}")
            return elastic_infra("explain", file, "--name", "j").out

        assert "over all pods: none (pods are made anew)" in said("")
        assert "over all pods: 9" in said("run_policy: {restart_policy: OnFailure, backoff_limit: 9}")

    @pytest.mark.parametrize(
        ("given", "size", "said"),
        [
            ("shared_memory: {size: 16Gi}", 8 << 30, "of a state of up to 8 GiB"),
            ("resources: {memory: 3Gi}", 3 << 29, "of a state of up to 1.5 GiB"),
            ("shared_memory: false", 32 << 20, "of a state of up to 32 MiB"),
            ("", None, "as large as it may be"),
        ],
    )
    def test_the_state_of_which_snapshots_fit_into_memory(
        self, tmp_path: Path, given: str, size: int | None, said: str
    ) -> None:
        """Two copies count: half of the volume, of the memory that bounds it, or of what a container has without."""
        file = tmp_path / "job.yaml"
        file.write_text(f"image: i\nscript: s.py\n{given}\n")
        found = json.loads(elastic_infra("explain", file, "--name", "j", "--format", "json").out)

        assert found["snapshot_bytes"] == size
        assert said in elastic_infra("explain", file, "--name", "j").out

    def test_single_pod_has_no_rendezvous(self, job_file: Path) -> None:
        """What does not exist is not explained."""
        found = json.loads(elastic_infra("explain", job_file, "--format", "json").out)

        assert found["rendezvous"] is None
        assert {budget["name"] for budget in found["budgets"]}.isdisjoint({"start", "lost_node"})

    @pytest.mark.parametrize("backend", ["etcd", "etcd-v2"])
    def test_a_job_that_torchrun_runs_does_without(self, tmp_path: Path, backend: str) -> None:
        """With the user's etcd the launcher becomes torchrun, and what is missing then is said beforehand."""
        file = tmp_path / "job.yaml"
        file.write_text(
            f"image: i\nscript: s.py\nelastic: {{nnodes: 2, rdzv_backend: {backend}, rdzv_endpoint: 'etcd:2379'}}\n"
        )
        found = json.loads(elastic_infra("explain", file, "--name", "j", "--format", "json").out)

        assert found["missing"].startswith("membership changes without a restart, warm start")
        assert repr(backend) in found["missing"]
        assert "does without" in elastic_infra("explain", file, "--name", "j").out
        assert "does without" not in elastic_infra("explain", QUICKSTART).out


class TestProgram:
    def test_version(self) -> None:
        """The package's version and nothing else."""
        assert elastic_infra("--version").out == f"{__version__}\n"

    def test_help_names_every_command(self) -> None:
        """The help lists all commands that exist."""
        help_text = elastic_infra("--help").out

        assert [command for command in COMMANDS if f"\n  {command} " not in help_text] == []

    @pytest.mark.parametrize(
        "arguments", [["rendr"], ["render"], ["render", "--nam", "x"], ["explain", "f", "--format", "xml"]]
    )
    def test_wrong_usage_is_bad_input(self, arguments: list[str]) -> None:
        """Exit 2, the reason on stderr, no document."""
        result = elastic_infra(*arguments)

        assert (result.code, result.out) == (2, "")
        assert "Error: " in result.err

    def test_render_loads_no_more_than_it_needs(self) -> None:
        """Neither rich, nor Pulumi, nor the commands that were not asked for."""
        code = (
            "import sys; sys.argv = ['elastic-infra', 'render', 'examples/quickstart/job.yaml', '--short']\n"
            "from elastic_infra.cli import main\n"
            "import os; os._exit = lambda code: None\n"
            "main()\n"
            "heavy = ('rich', 'pulumi', 'torch', 'elastic_infra.preview', 'elastic_infra.cli.explain')\n"
            "sys.exit(str([name for name in heavy if name in sys.modules] or ''))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

        assert done.stderr.splitlines()[1:] == [""]  # the first says how to make the store's Secret

    def test_a_closed_pipe_is_no_error_message(self, job_file: Path) -> None:
        """`elastic-infra render ... | head` ends quietly."""
        command = f"{sys.executable} -m elastic_infra.cli render {job_file}"
        done = subprocess.run(
            ["bash", "-c", f"{command} | head -c 1"], cwd=ROOT, capture_output=True, text=True, check=False
        )

        assert (done.stdout, done.stderr) == ("-", "")

    def test_a_full_disk_is_said(self, job_file: Path) -> None:
        """What cannot be written is an error and no traceback."""
        command = [sys.executable, "-m", "elastic_infra.cli", "render", str(job_file)]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

        assert (done.returncode, done.stderr) == (2, "The output cannot be written: No space left on device.\n")

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
    def test_a_terminal_that_lacks_a_character_gets_the_rest(self, tmp_path: Path, encoding: str) -> None:
        """A report is of use with `?` in it; a job file or a manifest would be another one, so these are UTF-8."""
        file, manifest = tmp_path / "train.yaml", tmp_path / "manifest.yaml"
        file.write_text("{image: i, script: s, env: {A: 'é…'}}", encoding="utf-8")
        report = self._with_encoding(encoding, "simulate", file)
        document = self._with_encoding(encoding, "render", file)
        manifest.write_bytes(document.stdout)
        imported = self._with_encoding(encoding, "import", manifest)

        assert [done.returncode for done in (report, document, imported)] == [0, 0, 0], report.stderr
        assert ("±" if encoding == "latin-1" else "?") in report.stdout.decode(encoding)
        assert all("é…" in done.stdout.decode() for done in (document, imported))

    def _with_encoding(self, encoding: str, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "elastic_infra.cli", *map(str, arguments)]
        environ = os.environ | {"PYTHONIOENCODING": encoding}
        return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=False)

    def test_an_interrupt_is_quiet(self, tmp_path: Path) -> None:
        """Ctrl-C ends the program with 130 and without a traceback, whatever it waits for."""
        fifo = tmp_path / "job.yaml"
        os.mkfifo(fifo)
        command = [sys.executable, "-m", "elastic_infra.cli", "render", str(fifo), "--name", "job"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            writer = os.open(fifo, os.O_WRONLY)  # returns when the program has opened it for reading
            while running.poll() is None:  # Python hears a signal that comes just before a read only at the next one
                running.send_signal(signal.SIGINT)
                time.sleep(0.1)
            out, err = running.communicate()
            os.close(writer)

        assert (running.returncode, out, err) == (INTERRUPTED, "", "")


def config(file: Path) -> JobConfig:
    """The config in a file."""
    return JobConfig.from_mapping(yaml.safe_load(file.read_text()))


class TestNameOfTheWorkingFolder:
    @pytest.mark.parametrize(
        ("path", "content", "is_told"),
        [
            ("job.yaml", "", True),
            ("job.yaml", "name: llm\n", False),
            ("./job.yaml", "", True),
            ("llm/job.yaml", "", False),
            ("llm.yaml", "", False),
        ],
    )
    def test_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, content: str, *, is_told: bool
    ) -> None:
        """A checkout in another folder would make another job."""
        folder = tmp_path / "checkout"
        (folder / "llm").mkdir(parents=True)
        (folder / path).write_text(f"{content}image: i\nscript: s\n")
        monkeypatch.chdir(folder)
        result = elastic_infra("validate", path)

        assert result.code == 0
        assert ("the folder in which this is run names the job (checkout)" in result.err) == is_told
