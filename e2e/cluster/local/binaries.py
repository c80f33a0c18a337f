"""The programs of the cluster: Go modules pinned by go.mod and go.sum.

A program is kept as ``bin/<name>-<version>`` and never built twice. It is written under another name and renamed, so an
interrupted build leaves nothing half done, and Go's own cache makes the next try short.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterSetupError
from e2e.cluster.layout import Layout
from e2e.cluster.progress import Progress

GO_FOLDER = Path(__file__).parent.parent / "go"
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
ON_DEMAND = ("helm",)
"""Tools that no cluster needs to run: `build_tools` builds them."""


@dataclass(frozen=True, slots=True)
class GoModule:
    """Programs that one go.mod pins.

    Attributes:
        folder: Its folder below ``go/``.
        module: Module whose required version names the programs' version.
        programs: Program name to Go package.
        version_variables: Linker variables to set; ``{0}`` is the whole version, ``{1}`` and ``{2}`` its first parts.
    """

    folder: str
    module: str
    programs: Mapping[str, str]
    version_variables: Mapping[str, str] = field(default_factory=dict)


MODULES = (
    GoModule(
        "kubernetes",
        "k8s.io/kubernetes",
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES},
        {
            "k8s.io/component-base/version.gitVersion": "v{0}",
            "k8s.io/component-base/version.gitMajor": "{1}",
            "k8s.io/component-base/version.gitMinor": "{2}",
        },
    ),
    GoModule(
        "helm",
        "helm.sh/helm/v4",
        {"helm": "helm.sh/helm/v4/cmd/helm"},
        {
            "helm.sh/helm/v4/internal/version.version": "v{0}",
            # Helm's own build sets these from its go.mod; charts are checked against them without a cluster.
            "helm.sh/helm/v4/pkg/chart/common.k8sVersionMinor": "34",
            "helm.sh/helm/v4/internal/version.kubeClientVersionMajor": "1",
            "helm.sh/helm/v4/internal/version.kubeClientVersionMinor": "34",
        },
    ),
    GoModule(
        "etcd",
        "go.etcd.io/etcd/server/v3",
        {"etcd": "./etcd", "etcdctl": "go.etcd.io/etcd/etcdctl/v3", "etcdutl": "go.etcd.io/etcd/etcdutl/v3"},
    ),
    GoModule("coredns", "github.com/coredns/coredns", {"coredns": "."}),
    GoModule("kube-router", "github.com/cloudnativelabs/kube-router/v2", {"kube-router": "."}),
)


def required_version(go_mod: str, module: str) -> str:
    """Reads the version of a module from the text of a go.mod.

    Raises:
        ValueError: The module is not required there.
    """
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} v(\S+)", go_mod, re.MULTILINE)
    if not found:
        raise ValueError(f"{module} is not required")
    return found.group(1)


def versions() -> dict[str, str]:
    """Gives the version of every program."""
    return {
        name: required_version((GO_FOLDER / module.folder / "go.mod").read_text(), module.module)
        for module in MODULES
        for name in module.programs
    }


def program(layout: Layout, name: str) -> Path:
    """Gives the path of a program, built or not."""
    return layout.bin / f"{name}-{versions()[name]}"


def build(layout: Layout, progress: Progress) -> None:
    """Builds the Go programs that are missing, one module after the other: Go itself uses all cores."""
    for module in MODULES:
        missing = [name for name in module.programs if name not in ON_DEMAND and not program(layout, name).exists()]
        if missing:
            with progress.step(f"build {', '.join(missing)} (minutes when Go's cache is cold)"):
                _build(layout, module, missing)


def build_tools(layout: Layout, progress: Progress) -> None:
    """Builds the tools that are only built on demand, where they are missing."""
    for module in MODULES:
        missing = [name for name in module.programs if name in ON_DEMAND and not program(layout, name).exists()]
        if missing:
            with progress.step(f"build {', '.join(missing)} (minutes when Go's cache is cold)"):
                _build(layout, module, missing)
    link(layout)


def built(layout: Layout) -> bool:
    """Tells whether every program of the cluster was built before."""
    return all(program(layout, name).exists() for module in MODULES for name in module.programs if name not in ON_DEMAND)


def _build(layout: Layout, module: GoModule, names: list[str]) -> None:
    if not shutil.which("go"):
        raise ClusterSetupError("Go was not found", remedy="install Go 1.24 or newer from https://go.dev/doc/install.")
    version = versions()[names[0]]
    parts = (version, *version.split("."))
    flags = " ".join(f"-X {key}={value.format(*parts)}" for key, value in module.version_variables.items())
    layout.bin.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=layout.bin, prefix=".build-") as folder:
        options = ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags=-s -w {flags}", "-o", f"{folder}/"]
        run(
            ["go", "build", *options, *(module.programs[name] for name in names)],
            env=os.environ | {"CGO_ENABLED": "0"},
            cwd=str(GO_FOLDER / module.folder),
        )
        for name in names:
            (Path(folder) / name).rename(program(layout, name))


def link(layout: Layout) -> None:
    """Puts kubectl, helm and etcd's tools under their plain names into the folder for PATH."""
    layout.commands.mkdir(parents=True, exist_ok=True)
    for name in ("kubectl", "helm", "etcdctl", "etcdutl"):
        if not program(layout, name).exists():
            continue
        partial = layout.commands / f".{name}"
        partial.unlink(missing_ok=True)
        partial.symlink_to(program(layout, name))
        partial.rename(layout.commands / name)
