"""Which provider is chosen, and what a cluster that is up leaves for others."""

from pathlib import Path

import pytest

from e2e.cluster import session
from e2e.cluster.errors import ClusterSetupError, component_error
from e2e.cluster.layout import Layout
from e2e.cluster.providers import Host, choose


def host(*, linux: bool = True, root: bool = True, engine: bool = False, kind: bool = False) -> Host:
    return Host(linux=linux, root=root, container_engine=engine, kind=kind)


def never() -> Host:
    raise AssertionError("the machine was looked at although somebody chose")


def test_a_named_provider_wins_over_the_environment() -> None:
    assert choose("kind", "local", never) == "kind"


def test_auto_follows_the_environment() -> None:
    assert choose("auto", "kubeconfig", never) == "kubeconfig"


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (host(), "local"),
        (host(kind=True), "local"),
        (host(engine=True, kind=True), "kind"),
        (host(engine=True, kind=True, root=False, linux=False), "kind"),
    ],
)
def test_auto_takes_what_the_machine_offers(seen: Host, name: str) -> None:
    assert choose("auto", None, lambda: seen) == name


@pytest.mark.parametrize("seen", [host(root=False), host(linux=False), host(engine=True)])
def test_without_a_fitting_provider_the_error_says_the_choices(seen: Host) -> None:
    with pytest.raises(ClusterSetupError, match="kind") as error:
        choose("auto", None, lambda: seen)
    assert "--provider kubeconfig" in error.value.remedy
    assert "--provider local" in error.value.remedy


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(ClusterSetupError, match="minikube"):
        choose("auto", "minikube", never)


def test_the_environment_file_quotes_its_paths(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "a b")
    layout.commands.mkdir(parents=True)
    session.write(layout, provider="local")
    assert session.environment(layout).splitlines() == [
        f"export KUBECONFIG='{layout.kubeconfig}'",
        f"export PATH='{layout.commands}':\"$PATH\"",
    ]
    assert session.recorded_provider(layout) == "local"
    session.forget(layout)
    assert session.recorded_provider(layout) is None


def test_without_a_cluster_the_environment_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ClusterSetupError, match=r"e2e\.cluster up"):
        session.environment(Layout(tmp_path))


def test_a_component_error_shows_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_text("\n".join(f"line {number}" for number in range(30)))
    text = str(component_error("etcd", "it ended", log=log))
    assert "line 29" in text
    assert "line 9\n" not in text
    assert str(log) in text
