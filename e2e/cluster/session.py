"""What a cluster that is up leaves for others: kubeconfig, environment file and the provider's name."""

import shlex

from e2e.cluster.errors import ClusterSetupError
from e2e.cluster.layout import Layout


def write(layout: Layout, *, provider: str) -> None:
    """Records that a cluster is up."""
    lines = [f"export KUBECONFIG={shlex.quote(str(layout.kubeconfig))}"]
    if layout.commands.exists():
        lines.append(f'export PATH={shlex.quote(str(layout.commands))}:"$PATH"')
    layout.env.write_text("\n".join(lines) + "\n")
    layout.provider.write_text(provider + "\n")


def recorded_provider(layout: Layout) -> str | None:
    """Reads which provider brought the cluster up; None when none is up."""
    return layout.provider.read_text().strip() if layout.provider.exists() else None


def environment(layout: Layout) -> str:
    """Reads the environment file.

    Raises:
        ClusterSetupError: No cluster is up.
    """
    if not layout.env.exists():
        raise ClusterSetupError("no cluster is up", remedy="run `python -m e2e.cluster up`.")
    return layout.env.read_text()


def forget(layout: Layout) -> None:
    """Removes the record."""
    for path in (layout.env, layout.provider, layout.kubeconfig):
        path.unlink(missing_ok=True)
