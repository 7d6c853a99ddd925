"""A setting as compose, Kubernetes, Helm and Slurm files: by their published schemas, and by what stands where."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from go_template import render_template

from dsabench.cli.main import run
from dsabench.config.load import load_launch
from dsabench.emit.compose import compose_files
from dsabench.emit.deployment import Wanted, deployment_of, dns_label, without_places
from dsabench.emit.kubernetes import helm_files, k8s_files, lws_files
from dsabench.emit.ray import ray_files
from dsabench.emit.shell_scripts import command_script, slurm_files
from dsabench.errors import InputError
from dsabench.model.topology import Role, RouterSpec, Topology
from dsabench.runtimes.kinds import make_runtime

RESULTS = Path(__file__).parents[3] / "results"
KUBERNETES = "1.34"
PAIR = Topology(
    roles=(Role(role="prefill", instances=2, knobs={"tp_size": 2}), Role(role="decode", knobs={"tp_size": 4})),
    router=RouterSpec(policy="round_robin"),
)
LEADER_WORKER_SET = {
    "type": "object",
    "required": ["replicas", "leaderWorkerTemplate"],
    "additionalProperties": False,
    "properties": {
        "replicas": {"type": "integer"},
        "leaderWorkerTemplate": {
            "type": "object",
            "required": ["size", "workerTemplate"],
            "additionalProperties": False,
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "restartPolicy": {"enum": ["RecreateGroupOnPodRestart", "None", "RecreateGroupAfterStart"]},
                "workerTemplate": {"type": "object"},
            },
        },
    },
}
"""What leaderworkerset.x-k8s.io/v1 says of the fields that are written here; the pods are Kubernetes' own."""
_NODES = {
    "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
    "template": {"type": "object"},
}
RAY_JOB = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "entrypoint": {"type": "string"},
        "shutdownAfterJobFinishes": {"type": "boolean"},
        "rayClusterSpec": {
            "type": "object",
            "required": ["headGroupSpec"],
            "additionalProperties": False,
            "properties": {
                "headGroupSpec": {
                    "type": "object",
                    "required": ["template"],
                    "additionalProperties": False,
                    "properties": _NODES,
                },
                "workerGroupSpecs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["groupName", "maxReplicas", "minReplicas", "template"],
                        "additionalProperties": False,
                        "properties": _NODES
                        | {"groupName": {"type": "string"}}
                        | {
                            key: {"type": "integer", "minimum": 0} for key in ("replicas", "minReplicas", "maxReplicas")
                        },
                    },
                },
            },
        },
    },
}
"""The same of ray.io/v1."""


def wanted(topology=None, *, name="Study_1", env=None, **changes):
    config = load_launch("h800-2node" if topology is None else "h200-tp8")
    if topology is not None:
        base = {key: value for key, value in config.base.items() if key != "tp_size"}
        config = config.model_copy(update={"base": base, "model": "deepseek-ai/DeepSeek-V3.2", **changes})
    spec = config.spec({})
    spec = spec.model_copy(update={"topology": topology or spec.topology, "env": {**spec.env, **(env or {})}})
    return Wanted(config, spec, "0.5.23", name, ("why $HOME `id`\nin words",))


ONE = Topology(roles=(Role(knobs={"tp_size": 8}),))
SHAPES = {"one": ONE, "two nodes": None, "prefill and decode": PAIR}


def documents(text: str) -> list[dict]:
    return list(yaml.safe_load_all(text))


def check_pod(template: dict) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template.get("metadata", {}), "name": "pod"}}
    kubernetes_validate.validate({**pod, "spec": template["spec"]}, KUBERNETES, strict=True)


def check_objects(objects: list[dict]) -> None:
    for one in objects:
        if one["kind"] == "LeaderWorkerSet":
            jsonschema.validate(one["spec"], LEADER_WORKER_SET)
            check_pod(one["spec"]["leaderWorkerTemplate"]["workerTemplate"])
        elif one["kind"] == "RayJob":
            jsonschema.validate(one["spec"], RAY_JOB)
            cluster = one["spec"]["rayClusterSpec"]
            for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
                check_pod(group["template"])
        else:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("form", "write"), [("k8s", k8s_files), ("lws", lws_files), ("ray", ray_files)])
def test_objects_are_those_of_the_published_schemas(shape, form, write) -> None:
    asked = replace(wanted(SHAPES[shape]), image="me/dsabench-sglang:1")
    (text,) = write(deployment_of(asked, form)).values()
    assert text.startswith("# why $HOME `id` in words\n")
    objects = documents(text)
    check_objects(objects)
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))


def test_a_pod_a_machine_and_the_first_one_answers() -> None:
    front, headless, pods = documents(k8s_files(deployment_of(wanted(), "k8s"))["kubernetes.yaml"])
    assert front["spec"]["selector"] == {"statefulset.kubernetes.io/pod-name": "study-1-server-0"}
    assert (headless["spec"]["clusterIP"], headless["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert pods["spec"]["replicas"] == 2
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    words = " ".join(container["command"])
    assert "--nnodes 2 --node-rank $(NODE_RANK)" in words
    assert "--dist-init-addr study-1-server-0.study-1-server:20000 --host 0.0.0.0 --port 30000" in words
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert container["image"] == "lmsysorg/sglang:v0.5.23"
    assert container["env"][0]["name"] == "NODE_RANK"
    assert container["startupProbe"]["failureThreshold"] == 360  # an hour to be ready, asked every ten seconds


def test_a_ray_job_launches_the_same_deployment_on_a_node_a_machine(tmp_path: Path) -> None:
    asked = replace(wanted(PAIR, env={"SGLANG_LOG": "1"}), image="me/dsabench-sglang:1")
    config, service, job = documents(ray_files(deployment_of(asked, "ray"))["rayjob.yaml"])
    (tmp_path / "config.yaml").write_text(config["data"]["config.yaml"])
    launched = load_launch(tmp_path / "config.yaml")
    assert launched.spec({}) == asked.spec.model_copy(update={"version": launched.version})
    assert launched.ready_timeout_s == asked.config.ready_timeout_s
    assert launched.launch.sites["router"].bind == "0.0.0.0"
    cluster = job["spec"]["rayClusterSpec"]
    head = cluster["headGroupSpec"]["template"]
    assert service["spec"]["selector"] == head["metadata"]["labels"]
    assert service["spec"]["ports"][0]["port"] in [
        port["containerPort"] for port in head["spec"]["containers"][0]["ports"]
    ]
    groups = [(group["groupName"], group["replicas"]) for group in cluster["workerGroupSpecs"]]
    assert groups == [("gpus-2", 2), ("gpus-4", 1)]
    with pytest.raises(InputError, match="name it with --image"):
        deployment_of(wanted(PAIR), "ray")


def test_a_ray_job_has_no_secret_of_the_config() -> None:
    asked = replace(wanted(PAIR, env={"MY_API_KEY": "hidden", "SGLANG_LOG": "1"}), image="me/dsabench-sglang:1")
    text = ray_files(deployment_of(asked, "ray"))["rayjob.yaml"]
    assert "hidden" not in text
    config, _, job = documents(text)
    assert yaml.safe_load(config["data"]["config.yaml"])["runtime"]["env"]["SGLANG_LOG"] == "1"
    (container,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"]
    assert [one["name"] for one in container["env"]] == ["MY_API_KEY", "HF_TOKEN"]
    assert container["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "sglang"


def test_a_config_that_is_written_has_no_secret() -> None:
    config = wanted(ONE).config.model_copy(update={"env": {"MY_API_KEY": "hidden", "SGLANG_LOG": "1"}})
    assert without_places(config)["env"] == {"SGLANG_LOG": "1"}


def test_leader_and_workers_are_told_their_rank_by_the_controller() -> None:
    front, group = documents(lws_files(deployment_of(wanted(), "lws"))["lws.yaml"])
    assert front["spec"]["selector"] == {
        "leaderworkerset.sigs.k8s.io/name": "study-1-server",
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }
    template = group["spec"]["leaderWorkerTemplate"]
    (container,) = template["workerTemplate"]["spec"]["containers"]
    assert template["size"] == 2
    assert "--node-rank $(LWS_WORKER_INDEX)" in " ".join(container["command"])


def test_the_router_waits_for_servers_and_knows_each() -> None:
    objects = documents(k8s_files(deployment_of(wanted(PAIR), "k8s"))["kubernetes.yaml"])
    router = objects[-1]["spec"]["template"]["spec"]
    words = " ".join(router["containers"][0]["command"])
    assert "--prefill http://study-1-prefill-0-0.study-1-prefill-0:30000 8998" in words
    assert "--prefill http://study-1-prefill-1-0.study-1-prefill-1:30300 8999" in words
    assert "--decode http://study-1-decode-0.study-1-decode:30600" in words
    assert "study-1-decode-0.study-1-decode:30600" in router["initContainers"][0]["command"][-1]
    gpus = [
        one["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        for one in objects
        if one["kind"] == "StatefulSet"
    ]
    assert gpus == [2, 2, 4]
    assert "--base-gpu-id" not in str(objects)  # each pod counts its own GPUs


@pytest.mark.parametrize("shape", ["one", "prefill and decode"])
def test_compose_is_that_of_the_published_schema(shape) -> None:
    (text,) = compose_files(deployment_of(wanted(SHAPES[shape]), "compose")).values()
    schema = resources.files("check_jsonschema").joinpath("builtin_schemas", "vendor", "compose-spec.json").read_text()
    document = yaml.safe_load(text)
    jsonschema.Draft7Validator(json.loads(schema)).validate(document)
    if shape == "prefill and decode":
        services = document["services"]
        firsts = [" ".join(services[name]["command"]) for name in ("prefill-0", "prefill-1", "decode")]
        assert ["--base-gpu-id 2" in firsts[1], "--base-gpu-id 4" in firsts[2]] == [True, True]
        assert all("--host 127.0.0.1" in words for words in firsts)
        assert "--host 127.0.0.1" in " ".join(services["router"]["command"])
        assert set(services["router"]["depends_on"]) == {"prefill-0", "prefill-1", "decode"}


def test_compose_is_for_one_machine() -> None:
    with pytest.raises(InputError, match="spans several: lws, k8s, helm or slurm"):
        deployment_of(wanted(), "compose")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_chart_renders_to_the_objects_with_its_values(shape, tmp_path) -> None:
    files = helm_files(deployment_of(wanted(SHAPES[shape], env={"SGLANG_X": "{{ .Values }}"}), "helm"))
    chart = yaml.safe_load(files["chart/Chart.yaml"])
    assert (chart["apiVersion"], chart["type"]) == ("v2", "application")
    values = yaml.safe_load(files["chart/values.yaml"])
    values |= {"image": 'own/"image"', "nodeSelector": {"gpu": "h200", "zone": "1"}, "gpuResource": "amd.com/gpu"}
    (tmp_path / "chart.yaml").write_text(files["chart/templates/sglang.yaml"])
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"Values": values, "Release": {"Name": "mine"}}))
    render_template(*(str(tmp_path / name) for name in ("chart.yaml", "values.yaml", "out.yaml")))
    objects = documents((tmp_path / "out.yaml").read_text())
    check_objects(objects)
    text = (tmp_path / "out.yaml").read_text()
    assert "helm" not in text
    expected = documents(k8s_files(deployment_of(wanted(SHAPES[shape], name="mine"), "k8s"))["kubernetes.yaml"])
    assert [one["metadata"] for one in objects] == [one["metadata"] for one in expected]
    pods = next(one for one in objects if one["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    assert pods["nodeSelector"] == {"gpu": "h200", "zone": "1"}
    assert pods["containers"][0]["image"] == 'own/"image"'
    assert "amd.com/gpu" in pods["containers"][0]["resources"]["limits"]
    assert {"name": "SGLANG_X", "value": "{{ .Values }}"} in pods["containers"][0]["env"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_of_slurm_is_clean_by_shellcheck(shape, tmp_path) -> None:
    deployment = deployment_of(wanted(SHAPES[shape]), "slurm")
    (tmp_path / "launch.sbatch").write_text(slurm_files(deployment)["launch.sbatch"])
    shellcheck = Path(sys.executable).with_name("shellcheck")
    found = subprocess.run([shellcheck, tmp_path / "launch.sbatch"], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")
    text = (tmp_path / "launch.sbatch").read_text()
    assert f"#SBATCH --nodes={ {'one': 1, 'two nodes': 2, 'prefill and decode': 3}[shape] }" in text
    assert f"--gpus-per-node={4 if shape == 'prefill and decode' else 8}" in text
    assert "://{node" not in text
    assert "'" not in text.partition("wait_for()")[2].partition("status=0")[0]  # every word of these is plain


def test_parts_on_one_named_machine_share_a_node_and_its_gpus(tmp_path) -> None:
    config = tmp_path / "pair.yaml"
    roles = [{"role": "prefill", "knobs": {"tp_size": 2}}, {"role": "decode", "knobs": {"tp_size": 4}}]
    sites = {"prefill": {"hosts": ["a"]}, "decode": {"hosts": ["a"]}}
    launch = {"sites": sites, "env": {"HF_TOKEN": "hf_secret", "HF_HOME": "/data"}, "container": {"image": "own"}}
    runtime = {"kind": "sglang", "model": "m/M", "hardware": "h200", "topology": {"roles": roles}, "launch": launch}
    config.write_text(yaml.safe_dump({"name": "pair", "runtime": runtime}))
    loaded = load_launch(config)
    deployment = deployment_of(Wanted(loaded, loaded.spec({}), "0.5.23", "pair", ()), "slurm")
    assert (deployment.nodes, deployment.gpus_per_node) == (1, 6)
    text = slurm_files(deployment)["launch.sbatch"]
    assert "--base-gpu-id 2" in text
    assert "--container-image=own" in text
    assert "HF_HOME=/data" in text
    assert "hf_secret" not in text


def test_a_job_runs_no_command_that_a_setting_or_a_name_spells(tmp_path) -> None:
    """Only the addresses of nodes, and variables of the config, are open to the shell."""
    spelled = "$(touch made) `touch made` $HOME"
    config = wanted(ONE, env={"SGLANG_X": spelled}, model="/models/a; touch made")
    text = slurm_files(deployment_of(replace(config, image="own; touch made"), "slurm"))["launch.sbatch"]
    start = text[text.index("\nstart server") :].partition("\nwait_for ")[0]
    script = tmp_path / "start.sh"
    script.write_text(
        'start() { shift 2; printf "%s\\n" "$@"; }\nsrun() { printf "%s\\n" "$@"; }\nNODE_0=here\n' + start
    )
    said = subprocess.run(
        ["bash", script], cwd=tmp_path, env={"HOME": "/home"}, capture_output=True, text=True, check=True
    )
    assert "SGLANG_X=$(touch made) `touch made` /home" in said.stdout.splitlines()
    assert "/models/a; touch made" in said.stdout.splitlines()
    script.write_text(
        next(line for line in text.splitlines() if "--container-image" in line).strip().removesuffix("\\")
    )
    subprocess.run(["bash", script], cwd=tmp_path, capture_output=True, check=False)
    assert not (tmp_path / "made").exists()


def test_several_commands_are_started_by_name(tmp_path) -> None:
    config = load_launch("local-pd")
    processes = make_runtime(config).plan(config.spec({})).processes
    script = tmp_path / "best.sh"
    script.write_text(command_script(processes, "# why\n"))
    said = subprocess.run(["sh", script], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (2, "")
    assert "prefill-0|decode-0|router" in said.stderr


def test_of_a_study_with_its_evidence(tmp_path, capsys) -> None:
    words = [
        "emit",
        str(RESULTS / "h200/hisparse-rank"),
        "--config",
        "h200-hisparse-rank",
        "--allow-simulated",
        "--json",
    ]
    for form, name in (("k8s", "kubernetes.yaml"), ("helm", "chart/Chart.yaml"), ("command", "best.sh")):
        assert run([*words, "--as", form, "--out", str(tmp_path / form)]) == 0
        written = json.loads(capsys.readouterr().out)
        assert written[0] == str(tmp_path / form / name)
    text = (tmp_path / "k8s/kubernetes.yaml").read_text()
    assert "# against the default, long: better, +24.1 % (+23.2 % to +25.0 %), 3 and 3 boots" in text
    assert "image: lmsysorg/sglang:v0.5.16" in text  # the release that was measured
    assert run([*words, "--as", "k8s", "--image", "own:1", "--out", str(tmp_path)]) == 0
    assert "image: own:1" in (tmp_path / "kubernetes.yaml").read_text()


RECIPES = sorted(path.stem for path in (Path(__file__).parents[3] / "configs" / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_as_objects_and_as_a_job(recipe: str, tmp_path: Path, capsys) -> None:
    """`launch --emit`: what is printed is what its file would have."""
    # Two recipes ask for a histogram of tokens, which versions from 0.5.22 on do not have.
    words = ["launch", f"recipes/{recipe}", "--runtime-version", "0.5.16", "--image", "own:1", "--emit"]
    for form in ("k8s", "lws"):
        assert run([*words, form]) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"# from {recipe}\n")
        check_objects(documents(text))
    assert run([*words, "slurm", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'launch.sbatch'}\n"
    shellcheck = Path(sys.executable).with_name("shellcheck")
    found = subprocess.run([shellcheck, tmp_path / "launch.sbatch"], capture_output=True, text=True, check=False)
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recipes/pd-ep-decode", "--emit", "helm"], "--emit helm makes 3 files: --out says where"),
        (["recipes/pd-ep-decode", "--emit", "k8s", "--json"], "--json and --emit exclude each other"),
        (["recipes/pd-ep-decode", "--dry-run", "--out", "here"], "--out and --image are for --emit"),
        (["local", "--emit", "k8s"], "k8s: kind reference serves on the machine that starts it"),
        (["h800-2node", "--emit", "compose"], "compose is for one machine, and this spans several"),
    ],
)
def test_what_cannot_be_emitted_is_one_line(words: list[str], said: str, capsys) -> None:
    assert run(["launch", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


def test_the_reference_runtime_is_for_this_machine(tmp_path, capsys) -> None:
    words = ["emit", str(RESULTS / "reference-cpu"), "--config", "local"]
    assert run([*words, "--as", "k8s", "--out", str(tmp_path / "out")]) == 2
    assert "k8s: kind reference serves on the machine that starts it: its command does it" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_names_are_dns_labels() -> None:
    assert dns_label("H200_x4 slice!") == "h200-x4-slice"
    assert dns_label("0.5") == "dsa-0-5"
    assert len(dns_label("a" * 99)) == 40
