"""Helm as the stack uses it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.stack.kubectl import NAMESPACE
from e2e.stack.paths import KUBECONFIG, LAYOUT


class HelmError(Exception):
    """Helm failed; the message is what it printed."""


def run(*arguments: str, namespace: str = NAMESPACE, timeout: float = 300) -> str:
    """Run Helm in a namespace and return what it printed.

    Raises:
        HelmError: It failed.
    """
    command = [LAYOUT.program("helm"), f"--kubeconfig={KUBECONFIG}", f"--namespace={namespace}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise HelmError(f"helm {' '.join(arguments[:3])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def upgrade(release: str, chart: Path, *options: str, namespace: str = NAMESPACE) -> str:
    """Install a release, or bring it to these values; `options` are Helm's own."""
    return run("upgrade", "--install", release, str(chart), *options, namespace=namespace)


def set_options(values: dict[str, str]) -> list[str]:
    """Values as options, each taken as text."""
    return [part for name, value in values.items() for part in ("--set-string", f"{name}={value}")]
