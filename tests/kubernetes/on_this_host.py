"""Settings for a cluster whose only node is this host: its pods run the very Python that the tests run.

python -m tests.kubernetes.on_this_host > settings.yaml
LAUNCHPAD_KUBERNETES=settings.yaml KUBECONFIG=… python -m examples.mapreduce --lp_launch_type=kubernetes
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import yaml

IMAGE = "lp.local/hostroot:1"
API_ADDRESS = "10.0.9.1"
"""The address of the cluster's API for pods: no proxy on this host leads there from the usual address."""

ROOT = Path(__file__).parents[2]


def settings(
    shared: str = "", namespace: str = "", api_address: str = API_ADDRESS
) -> dict[str, Any]:
    """An image of links, over which the host's folders are mounted; in one of them pods may write."""
    folders = sorted({"/usr", str(ROOT), sys.prefix, sys.base_prefix})
    names = {folder: f"host-{i}" for i, folder in enumerate(folders)}
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    mounts = [
        {"name": name, "mountPath": folder, "readOnly": True} for folder, name in names.items()
    ]
    if shared:
        names[shared] = "shared"
        mounts.append({"name": "shared", "mountPath": shared})
    env = {
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "KUBERNETES_SERVICE_HOST": api_address,
        "KUBERNETES_SERVICE_PORT": "16443",
        **_choices_of_kernels(),
    }
    container = {
        "name": "*",
        "imagePullPolicy": "Never",
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": mounts,
    }
    pod = {
        "securityContext": {"runAsNonRoot": False, "runAsUser": os.getuid()},
        "volumes": [{"name": name, "hostPath": {"path": folder}} for folder, name in names.items()],
        "containers": [container],
    }
    own = {"namespace": namespace} if namespace else {}
    return {"image": IMAGE, "pod_patch": {"spec": pod}, "pending_timeout_s": 60, **own}


def _choices_of_kernels() -> dict[str, str]:
    """Return the variables with which this host chooses code for its processor.

    Examples compare bits that pods have computed with bits that the script has. With other kernels for matrix
    products, the last bits differ.
    """
    prefixes = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NPY_DISABLE_", "NPY_ENABLE_")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


if __name__ == "__main__":
    print(yaml.safe_dump(settings()))
