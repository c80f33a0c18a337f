"""The builders' command lines, and what of this host gets into a build."""

from pathlib import Path

import pytest

from images import debian, host
from images.commands import Build, Buildah, Builder, Docker
from images.delivery import destination
from images.errors import failed_command
from images.processes import BUILD_STEP

BUILDERS = (Buildah(Path("/storage")), Docker())
BUILD = Build(
    "localhost/cachescope/gateway:0123456789ab",
    Path("/context/images/gateway/Containerfile"),
    Path("/context"),
    base="base:1",
    secrets=(("ca", Path("/host/ca.pem")),),
)


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda builder: type(builder).__name__)
def test_build_passes_base_name_file_and_context(builder: Builder) -> None:
    command = builder.build(BUILD)
    assert "--build-arg=BASE=base:1" in command
    assert f"--tag={BUILD.reference}" in command
    assert f"--file={BUILD.containerfile}" in command
    assert command[-1] == "/context"


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda builder: type(builder).__name__)
def test_host_files_get_in_as_secrets_only(builder: Builder) -> None:
    mentions = [argument for argument in builder.build(BUILD) if "/host/ca.pem" in argument]
    assert mentions == ["--secret=id=ca,src=/host/ca.pem"]


@pytest.mark.parametrize(("cached", "flag"), [(True, "--layers=true"), (False, "--layers=false")])
def test_large_images_leave_no_cached_steps(*, cached: bool, flag: str) -> None:
    build = Build("x:1", Path("Containerfile"), Path(), base="", cached=cached)
    command = Buildah(Path("/storage")).build(build)
    assert flag in command
    assert not any("BASE" in argument for argument in command)


def test_buildah_keeps_all_its_storage_in_one_folder() -> None:
    buildah = Buildah(Path("/storage"))
    for command in (buildah.build(BUILD), buildah.images(), buildah.remove(["x:1"]), *buildah.prune()):
        assert command[:3] == ["buildah", "--root=/storage/root", "--runroot=/storage/run"]


def test_archive_carries_the_full_name() -> None:
    command = Buildah(Path("/storage")).save(BUILD.reference, Path("/out/gateway.tar"))
    assert command[-1] == f"oci-archive:/out/gateway.tar:{BUILD.reference}"


def test_push_names_the_image_below_the_prefix() -> None:
    target = destination("registry.example/team/", BUILD.reference)
    assert target == "registry.example/team/gateway:0123456789ab"
    assert Buildah(Path("/storage")).push(BUILD.reference, target)[0][-1] == f"docker://{target}"
    assert Docker().push(BUILD.reference, target) == [
        ["docker", "tag", BUILD.reference, target],
        ["docker", "push", target],
    ]


def test_pip_of_the_host_does_not_leak_into_builds(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("")
    environment = {"SSL_CERT_FILE": str(bundle), "PIP_FIND_LINKS": "/wheels", "PIP_INDEX_URL": "https://index.example/"}
    text = host.pip_configuration(environment)
    assert "cert = /run/secrets/ca" in text
    assert "index-url = https://index.example/" in text
    assert "/wheels" not in text
    assert str(bundle) not in text


def test_host_without_a_bundle_adds_none(tmp_path: Path) -> None:
    for environment in ({}, {"SSL_CERT_FILE": str(tmp_path / "absent")}):
        assert host.ca_bundle(environment) is None
        assert "cert" not in host.pip_configuration(environment)


def test_bundle_of_pip_comes_before_that_of_openssl(tmp_path: Path) -> None:
    first, second = tmp_path / "pip.pem", tmp_path / "ssl.pem"
    first.write_text("")
    second.write_text("")
    assert host.ca_bundle({"SSL_CERT_FILE": str(second), "PIP_CERT": str(first)}) == first


def test_base_is_debian_minimum_with_venv() -> None:
    command = debian.bootstrap(Path("/out/base.tar"))
    assert command[:2] == ["mmdebstrap", "--variant=minbase"]
    assert "--include=ca-certificates,python3,python3-venv" in command
    assert command[-1] == "/out/base.tar"


@pytest.mark.parametrize("line", ["STEP 1/4: FROM x", "[2/2] STEP 3/4: RUN y", "#9 [build 3/8] RUN z"])
def test_steps_of_builders_are_progress(line: str) -> None:
    assert BUILD_STEP.match(line)
    assert not BUILD_STEP.match("Collecting vllm")


def test_failure_shows_the_end_of_the_log_and_where_it_is(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    log.write_text("\n".join(f"line {number}" for number in range(100)))
    message = str(failed_command("gateway", 1, log=log))
    assert "line 70" in message
    assert "line 69" not in message
    assert f"Next: read {log}" in message
