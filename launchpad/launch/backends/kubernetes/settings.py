"""The settings of a launch on a cluster: everything that the program itself does not define."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from launchpad.errors import DefinitionError

FILE = "LAUNCHPAD_KUBERNETES"
"""The environment variable with the path of a settings file."""


@dataclass(frozen=True)
class Settings:
    """Settings for pods: arguments of `lp.plan` and `lp.launch`, or the YAML file of $LAUNCHPAD_KUBERNETES.

    Example:
        lp.launch(program, "kubernetes", image="registry.example.org/me/project:3")

    Attributes:
        image: The image of the containers. It must have Python, launchpad and your packages.
        namespace: The namespace of all objects; empty means the namespace of the kubeconfig's context.
        gpu_resource: The name that the cluster's device plugin gives to a GPU.
        default_resources: The resources of a worker, as far as its `lp.Resources` leave them open:
            `{"cpu": "500m", "memory": "1Gi"}`. Each is a request and a limit. They have the cluster's names
            and units, so that `"ephemeral-storage"`, which `lp.Resources` lack, can be among them.
        pod_patch: A patch of each pod's template, for everything that these settings lack: tolerations,
            volumes, a scheduler's name. Dicts are merged, and so are lists whose members have names.
            Everything else is replaced.
        group_patches: Label of a group → a patch for the pods of this group, merged after `pod_patch`:
            `{"learner": {"spec": {"priorityClassName": "high"}}}`.
        state_volume: The volume in which `state="exp1"` is a folder, as in a pod's spec:
            `{"persistentVolumeClaim": {"claimName": "runs"}}`. All workers mount it.
        pending_timeout_s: How long a pod may wait until it is placed and its image is there.
        send_code: True to send the modules beside the script to the pods. Set it to False if the image or a
            volume has them, on the pods' `PYTHONPATH`.
    """

    image: str = ""
    namespace: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    default_resources: Mapping[str, str] = field(default_factory=dict)
    pod_patch: Mapping[str, Any] = field(default_factory=dict)
    group_patches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    state_volume: Mapping[str, Any] = field(default_factory=dict)
    pending_timeout_s: float = 300.0
    send_code: bool = True

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Settings:
        """Return the settings of the file, overridden by these options.

        Raises:
            DefinitionError: the file cannot be read, a setting is unknown, or a setting has the wrong type.
        """
        settings = dict(options)
        path = os.environ.get(FILE)
        if path:
            import yaml

            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            try:
                content = yaml.load(Path(path).read_text(), loader)
            except (OSError, yaml.YAMLError) as error:
                raise DefinitionError(f"{FILE}={path} cannot be read: {error}") from error
            if not isinstance(content, dict):
                raise DefinitionError(
                    f"{FILE}={path} must hold `image: …` and the like, not {content!r}"
                )
            settings = {**content, **options}
        names = [setting.name for setting in fields(cls)]
        for name, value in settings.items():
            if name not in names:
                raise DefinitionError(
                    f"launch type 'kubernetes' takes no {name!r}; it takes {', '.join(names)}"
                )
            expected = _TYPES.get(name, (str,))
            if not isinstance(value, expected) or (
                isinstance(value, bool) and bool not in expected
            ):
                kinds = " or ".join(kind.__name__ for kind in expected)
                raise DefinitionError(f"{name}={value!r} must be {kinds}")
        patches = {f"group_patches[{k!r}]": v for k, v in settings.get("group_patches", {}).items()}
        for name, patch in {"pod_patch": settings.get("pod_patch", {}), **patches}.items():
            if not isinstance(patch, Mapping) or not set(patch) <= {"metadata", "spec"}:
                raise DefinitionError(
                    f"{name} must be the patch of a pod's template, with 'metadata' or 'spec' in it, such as"
                    f" {{'spec': {{'tolerations': […]}}}}, not {patch!r}"
                )
        amounts = settings.get("default_resources", {})
        for resource, amount in amounts.items():
            if isinstance(amount, bool) or not _QUANTITY.fullmatch(str(amount)):
                raise DefinitionError(
                    f"default_resources[{resource!r}]={amount!r} must be an amount as in a pod's spec, such"
                    " as '500m' of the resource 'cpu', or '1Gi' of 'memory'"
                )
        # In YAML, an amount may be a number.
        settings["default_resources"] = {name: str(amount) for name, amount in amounts.items()}
        return cls(**settings)


_QUANTITY = re.compile(r"\d+(\.\d+)?([mkMGTPE]|[KMGTPE]i)?")

_TYPES: dict[str, tuple[type, ...]] = {
    "default_resources": (Mapping,),
    "pod_patch": (Mapping,),
    "group_patches": (Mapping,),
    "state_volume": (Mapping,),
    "pending_timeout_s": (int, float),
    "send_code": (bool,),
}
"""The types of settings that are not strings."""
