"""A plan for Kubernetes: names, manifests, what is refused. No cluster anywhere."""

from __future__ import annotations

import copy
import importlib
import io
import itertools
import os
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import launchpad as lp
from launchpad.launch.backends.kubernetes.create_run import Submitter
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.launch.backends.kubernetes.manifests.pod_spec import patched, pod_spec
from launchpad.launch.backends.kubernetes.pod_inputs import archives, pod_input
from launchpad.launch.backends.kubernetes.settings import Settings
from tests import nodes
from tests.helpers.programs import single

IMAGE = "registry.example.org/me/project:3"
GOLDEN = Path(__file__).parent / "golden"

pytestmark = pytest.mark.usefixtures("nothing_is_set_outside")


def program_of(**resources: Any) -> lp.Program:
    program = lp.Program("My Program")
    with program.group("server"):
        server = program.add_node(lp.CourierNode(nodes.Counter))
    with program.group("Worker_A", resources=lp.Resources(**resources)):
        program.add_node(lp.PyClassNode(nodes.Caller, server))
        program.add_node(lp.PyClassNode(nodes.Caller, server))
    return program


def manifests_of(program: lp.Program, **options: Any) -> list[dict[str, Any]]:
    text = lp.plan(program, "kubernetes", **{"image": IMAGE, **options}).to_yaml()
    return list(yaml.safe_load_all(text))


def job_of(worker: str, program: lp.Program, **options: Any) -> dict[str, Any]:
    manifests = manifests_of(program, **options)
    return next(
        m
        for m in manifests
        if m["kind"] == "Job" and m["metadata"]["labels"]["launchpad/worker"] == worker
    )


def pod_of(worker: str, program: lp.Program, **options: Any) -> dict[str, Any]:
    pod: dict[str, Any] = job_of(worker, program, **options)["spec"]["template"]["spec"]
    return pod


# --- what a run consists of ----------------------------------------------------------------------


def without_payloads(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A payload holds what is random: the identities of addresses and classes."""
    plain = copy.deepcopy(manifests)
    for manifest in plain:
        for file in manifest.get("data", ()):
            if file.startswith("worker."):
                manifest["data"][file] = "…"
    return plain


@pytest.mark.parametrize(
    ("name", "resources", "options"),
    [
        ("plain", {}, {}),
        (
            "with_resources",
            {"cpus": 1.5, "gpus": 2, "memory": "4GiB", "env": {"B": "2", "A": "1"}},
            {
                "namespace": "research",
                "gpu_resource": "amd.com/gpu",
                "default_resources": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "2Gi"},
            },
        ),
        (
            "placed_and_patched",
            {"placement": "strict_spread", "labels": {"zone": "a"}},
            {
                "pod_patch": {
                    "spec": {
                        "schedulerName": "other",
                        "tolerations": [{"key": "gpu", "operator": "Exists"}],
                        "securityContext": {"runAsUser": 0, "runAsNonRoot": None},
                        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}],
                        "containers": [
                            {"name": "*", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
                        ],
                    }
                },
                "group_patches": {
                    "Worker_A": {
                        "metadata": {"labels": {"tier": "gpu"}},
                        "spec": {
                            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                            "priorityClassName": "high",
                        },
                    }
                },
            },
        ),
    ],
)
def test_manifests_are_as_in_the_golden_file(
    name: str, resources: dict[str, Any], options: dict[str, Any]
) -> None:
    found = without_payloads(manifests_of(program_of(**resources), **options))

    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("LP_WRITE_GOLDEN"):
        path.write_text(yaml.safe_dump_all(found, sort_keys=False))
    assert found == list(yaml.safe_load_all(path.read_text()))


def test_a_plan_gives_the_same_text_again_and_names_addresses_before_any_pod() -> None:
    plan = lp.plan(program_of(), "kubernetes", image=IMAGE)

    assert plan.to_yaml() == plan.to_yaml()
    assert plan.endpoints == {"server-0/courier": "tcp:server-0.{service}:7070"}


@pytest.mark.parametrize(("grace_s", "given"), [(30, 35), (-1, 604805), (float("inf"), 604805)])
def test_a_pod_has_as_long_to_stop_as_its_policy_says(grace_s: float, given: int) -> None:
    program = lp.Program("stops")
    with program.group("one", restart=lp.RestartPolicy(stop_grace_s=grace_s)):
        program.add_node(lp.PyNode(nodes.loop_for_ever))

    assert pod_of("one-0", program)["terminationGracePeriodSeconds"] == given


def test_the_processes_of_a_colocation_are_on_one_node_and_each_has_a_pod() -> None:
    program = lp.Program("colocated")
    parts = [lp.PyNode(nodes.loop_for_ever), lp.PyNode(nodes.loop_for_ever)]
    with program.group("trainer"):
        program.add_node(lp.MultiProcessingColocation(parts))

    for worker in ("trainer-0.0", "trainer-0.1"):
        job = job_of(worker, program)
        (term,) = job["spec"]["template"]["spec"]["affinity"]["podAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        its_labels = job["spec"]["template"]["metadata"]["labels"]
        assert term["labelSelector"]["matchLabels"].items() <= its_labels.items()
        assert its_labels["launchpad/colocation"] == "trainer-0"


def test_a_worker_gets_by_default_only_what_it_does_not_ask_for() -> None:
    defaults = {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": "0"}
    program = program_of(memory="4GiB", gpus=1)

    asking, other = (
        pod_of(worker, program, default_resources=defaults) for worker in ("Worker_A-0", "server-0")
    )

    limits = asking["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "2", "memory": str(4 << 30), "nvidia.com/gpu": "1"}
    limits = other["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "0"}
    for pod in (asking, other):
        resources = pod["containers"][0]["resources"]
        assert resources["requests"] == {"ephemeral-storage": "64Mi", **resources["limits"]}


@pytest.mark.parametrize(
    ("memory", "defaults", "in_memory", "on_disk"),
    [
        (None, {}, "10Gi", "10Gi"),
        ("2GiB", {}, str(2 << 30), "10Gi"),
        ("2GiB", {"memory": "1Gi"}, str(2 << 30), "10Gi"),
        (None, {"memory": "1Gi", "ephemeral-storage": "5Gi"}, "1Gi", "5Gi"),
    ],
)
def test_each_folder_of_a_pod_has_a_limit_that_follows_from_the_worker_s_resources(
    memory: str | None, defaults: dict[str, str], in_memory: str, on_disk: str
) -> None:
    pod = pod_of("Worker_A-0", program_of(memory=memory), default_resources=defaults)

    limits = {v["name"]: v["emptyDir"]["sizeLimit"] for v in pod["volumes"] if "emptyDir" in v}
    assert limits == {"run": on_disk, "state": on_disk, "tmp": on_disk, "shm": in_memory}


def test_pods_are_as_the_pod_security_standard_restricted_wants_them() -> None:
    pod = pod_of("Worker_A-0", program_of(gpus=1, memory="1GiB", placement="spread"))

    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    allowed = {
        "configMap",
        "downwardAPI",
        "emptyDir",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    assert all(len(volume.keys() & allowed) == 1 for volume in pod["volumes"])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostPort" not in str(container)
    assert pod["automountServiceAccountToken"] is False


def test_all_objects_have_the_labels_by_which_tools_of_others_group_them() -> None:
    manifests = manifests_of(program_of())
    manifests += [m["spec"]["template"] for m in manifests if m["kind"] == "Job"]

    assert {kind["kind"] for kind in manifests if "kind" in kind} >= {"Secret", "Service", "Job"}
    for manifest in manifests:
        labels = manifest["metadata"]["labels"]
        recommended = {name: labels[f"app.kubernetes.io/{name}"] for name in ("name", "instance")}
        assert recommended == {"name": "My-Program", "instance": "my-program-00000000"}
        assert labels["app.kubernetes.io/managed-by"] == "launchpad"


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "options", "complaint"),
    [
        ({}, {"image": ""}, "needs an image: one that has Python, launchpad"),
        ({"gpus": 0.5}, {}, r"Worker_A-0 asks for 0.5 GPU: .* whole ones only"),
        ({"gpus": 1, "accelerator": "A100"}, {}, r"labels=\{'nvidia.com/gpu.product'"),
        ({}, {"imagee": "x"}, "takes no 'imagee'; it takes image, namespace"),
        ({}, {"image": 3}, "image=3 must be str"),
        ({}, {"pod_patch": []}, r"pod_patch=\[\] must be Mapping"),
        ({}, {"pod_patch": {"tolerations": []}}, "pod_patch must be the patch of a pod's template"),
        (
            {},
            {"group_patches": {"worker": {}}},
            r"names a group 'worker'; program 'My Program' has \['server', 'Worker_A'\]",
        ),
        ({}, {"group_patches": {"server": []}}, r"group_patches\['server'\] must be the patch of"),
        ({}, {"group_patches": {"server": {"containers": []}}}, r"with 'metadata' or 'spec' in it"),
        (
            {},
            {"default_resources": {"cpu": "much"}},
            r"default_resources\['cpu'\]='much' must be an",
        ),
        ({}, {"default_resources": {"memory": True}}, r"\['memory'\]=True must be an amount"),
        ({}, {"default_resources": "1Gi"}, "default_resources='1Gi' must be Mapping"),
        ({}, {"pending_timeout_s": "1"}, "pending_timeout_s='1' must be int or float"),
        ({}, {"pending_timeout_s": True}, "pending_timeout_s=True must be int or float"),
        ({}, {"send_code": "no"}, "send_code='no' must be bool"),
    ],
)
def test_what_no_cluster_gives_and_odd_settings_are_refused(
    resources: dict[str, Any], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(lp.DefinitionError, match=complaint):
        lp.plan(program_of(**resources), "kubernetes", **{"image": IMAGE, **options})


def test_for_another_launch_type_settings_are_refused_and_there_are_no_manifests() -> None:
    with pytest.raises(lp.DefinitionError, match="no argument 'image' with launch type 'local_mp'"):
        lp.plan(program_of(), "local_mp", image=IMAGE)
    with pytest.raises(lp.DefinitionError, match="not one for 'local_mp'"):
        lp.plan(program_of(), "local_mp").to_yaml()


def test_two_workers_whose_names_become_one_are_refused() -> None:
    program = lp.Program("twins")
    for label in ("a_b", "a-b"):
        program.add_node(lp.CourierNode(nodes.Counter), label=label)

    with pytest.raises(lp.DefinitionError, match="a_b-0 and a-b-0 would both be called 'a-b-0'"):
        lp.plan(program, "kubernetes", image=IMAGE)


def test_a_payload_that_is_too_large_is_refused_with_its_largest_members() -> None:
    members = {"small": b"1", "large": os.urandom(12 << 20)}
    program = single(lp.PyClassNode(nodes.Taker, members), "holder")

    with pytest.raises(lp.DefinitionError, match=r"holder\S*\['large'\] 12,58"):
        lp.plan(program, "kubernetes", image=IMAGE)


def test_settings_may_stand_in_a_file_and_what_is_given_counts_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("image: from/the-file:1\nnamespace: team\n")
    monkeypatch.setenv("LAUNCHPAD_KUBERNETES", str(file))

    of_file = lp.plan(program_of(), "kubernetes").to_yaml()
    given = lp.plan(program_of(), "kubernetes", image=IMAGE).to_yaml()

    for text, image in ((of_file, "from/the-file:1"), (given, IMAGE)):
        assert f"image: {image}\n" in text
        assert "namespace: team\n" in text


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "run"),
    [
        ("mapreduce", "mapreduce-3f9a02c1"),
        ("My Program!", "my-program-3f9a02c1"),
        ("42", "p-42-3f9a02c1"),
        ("…", "program-3f9a02c1"),
        ("a" * 100, "a" * 18 + "-3f9a02c1"),
    ],
)
def test_a_run_gets_a_name_that_a_service_may_have(program: str, run: str) -> None:
    assert names.run_name(program, "3f9a02c1") == run


def test_long_names_are_cut_and_still_differ() -> None:
    first, second = (names.host_name(f"{'actor' * 20}-{i}") for i in (1, 2))

    assert first != second
    job = names.job_name(names.run_name("p" * 50, "3f9a02c1"), f"{'actor' * 20}-1", 9999)
    assert len(job) + len("-12345") <= 63


@pytest.mark.parametrize("text", ["actor-3", "trainer-0.1", "Größe", "_x_", "a b/c", "-" * 80])
def test_every_text_becomes_a_label(text: str) -> None:
    value = names.label(text)

    assert 0 < len(value) <= 63
    assert value.isascii()
    assert value[0].isalnum()
    assert value[-1].isalnum()


# --- parts ---------------------------------------------------------------------------------------


def test_a_label_of_the_patch_is_the_jobs_too_where_queues_look_for_it() -> None:
    queue = {"kueue.x-k8s.io/queue-name": "mine"}

    job = job_of("server-0", program_of(), pod_patch={"metadata": {"labels": queue}})

    assert queue.items() <= job["metadata"]["labels"].items()
    assert queue.items() <= job["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("sizes", [[], [10, 20], [600_000, 600_000, 10], [2_500_000, 7], [10] * 50])
def test_contents_are_packed_in_few_secrets_and_found_again(
    sizes: list[int], tmp_path: Path
) -> None:
    contents = {f"worker.{i}": os.urandom(size) for i, size in enumerate(sizes)}

    secret_files, places = pod_input.pack_secrets({"shared": b"for all"}, contents)

    filled = [sum(map(len, box.values())) for box in secret_files]
    assert secret_files[0]["shared"] == b"for all"
    assert max(filled) <= pod_input.PART_BYTES
    assert len(filled) <= 2 + 2 * sum(sizes) // pod_input.PART_BYTES
    for name, content in contents.items():
        folder = tmp_path / name
        folder.mkdir()
        for i, (box, file) in enumerate(places[name]):
            (folder / pod_input.file_name("it", i)).write_bytes(secret_files[box][file])
        assert pod_input.unpacked(folder, "it") == content


def a_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that this process has imported."""
    package = folder / "imported_here"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(folder)
    importlib.import_module(package.name)
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    monkeypatch.setitem(sys.modules, package.name, ModuleType(package.name))
    return package


def test_a_project_is_what_was_imported_and_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = a_package(tmp_path, monkeypatch)
    sent = ["beside.py", "imported_here/a.py", "imported_here/sub/data.json"]
    not_sent = [".env", "not_imported/b.py", "imported_here/model.bin", "imported_here/.git/c.py"]
    for name in sent + not_sent:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1")

    packed = archives.zipped(tmp_path)

    assert packed == archives.zipped(tmp_path)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert sorted(archive.namelist()) == sorted([*sent, f"{package.name}/__init__.py"])


def test_a_project_that_is_too_large_is_refused_with_its_largest_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = a_package(tmp_path, monkeypatch)
    for i in range(40):
        (package / f"data{i:02d}.txt").write_bytes(os.urandom(256 << 10))
    (package / "data00.txt").write_bytes(os.urandom((256 << 10) - 1))

    with pytest.raises(
        lp.DefinitionError, match=r"than the 8 MiB .* \S+/data01.txt 256 KiB.*send_code"
    ):
        archives.zipped(tmp_path)


def test_what_is_not_to_be_sent_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "zipped", lambda folder: b"code")

    assert Submitter.here(Settings()).code == b"code"
    assert Submitter.here(Settings(send_code=False)).code == b""


# --- patches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "patch", "expected"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"c": 2, "b": 3}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        (
            {"v": [{"name": "x", "k": 1}]},
            {"v": [{"name": "y"}, {"name": "x", "k": 2}]},
            {"v": [{"name": "x", "k": 2}, {"name": "y"}]},
        ),
        (
            {"v": [{"name": "x"}, {"name": "y"}]},
            {"v": [{"name": "*", "k": 1}]},
            {"v": [{"name": "x", "k": 1}, {"name": "y", "k": 1}]},
        ),
    ],
)
def test_a_patch_is_merged(value: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy(value)

    assert patched(value, patch) == expected
    assert value == before


def test_sound_17_all_pods_have_the_hash_seed_of_their_run_and_the_flags_of_the_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = lp.plan(program_of(), "kubernetes", image=IMAGE)
    settings = Settings(image=IMAGE, send_code=False)
    run = names.Run("p", "p-1", settings, python_flags=("-O", "-Xdev"), hash_seed="7")

    for worker, attempt in itertools.product(plan.workers, (1, 2)):
        container = pod_spec(run, worker, attempt, [], "pod")["containers"][0]
        assert container["env"] == [{"name": "PYTHONHASHSEED", "value": "7"}]
        assert container["command"][:5] == ["python3", "-O", "-Xdev", "-m", "pod"]

    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    drawn, other = (Submitter.here(settings).origin.interpreter.hash_seed for _ in range(2))
    assert drawn.isdigit()
    assert drawn != other
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert Submitter.here(settings).origin.interpreter.hash_seed == "7"
