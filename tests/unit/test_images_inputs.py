"""The tag of an image changes with each of its inputs, and with nothing else."""

import itertools
from pathlib import Path

import pytest

from images import inputs, references
from images.catalogue import IMAGES, Image, select
from images.errors import ImageError

CONTENTS = [("a/one", b"1"), ("b/two", b"2")]


def test_equal_inputs_have_one_tag() -> None:
    tag = inputs.digest(CONTENTS, base="base:1")
    assert tag == inputs.digest(list(CONTENTS), base="base:1")
    assert len(tag) == 12
    assert int(tag, 16) >= 0


def test_every_input_changes_the_tag() -> None:
    variants = [
        (CONTENTS, "base:1"),
        (CONTENTS, "base:2"),
        ([("a/one", b"x"), ("b/two", b"2")], "base:1"),
        ([("a/uno", b"1"), ("b/two", b"2")], "base:1"),
        (CONTENTS[:1], "base:1"),
        ([("a/on", b"e1"), ("b/two", b"2")], "base:1"),
        ([("a/one", b"1b/two2")], "base:1"),
        ([("a/one", b"1"), ("b/two", b"2"), ("c", b"")], "base:1"),
    ]
    tags = {inputs.digest(contents, base=base) for contents, base in variants}
    assert len(tags) == len(variants)


def test_compiled_python_is_no_input(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "__pycache__").mkdir(parents=True)
    (package / "module.py").write_text("")
    (package / "__pycache__" / "module.cpython-311.pyc").write_bytes(b"")
    (package / "stale.pyc").write_bytes(b"")
    assert inputs.files(tmp_path, ["package"]) == ["package/module.py"]


def test_missing_source_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"absent does not exist(.|\n)*Next: "):
        inputs.files(tmp_path, ["absent"])


def test_builder_sees_exactly_the_digested_files_readable_by_all(tmp_path: Path) -> None:
    (tmp_path / "root" / "deep").mkdir(parents=True)
    (tmp_path / "root" / "deep" / "file").write_text("content")
    (tmp_path / "root" / "deep" / "file").chmod(0o600)
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "left-over").write_text("")
    inputs.stage(tmp_path / "root", ["deep/file"], tmp_path / "context")
    assert [path.name for path in sorted((tmp_path / "context").rglob("*"))] == ["deep", "file"]
    assert (tmp_path / "context" / "deep" / "file").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "context" / "deep").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_containerfile_copies_only_declared_sources(image: Image) -> None:
    lines = (references.ROOT / image.containerfile).read_text().splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from=" not in line]
    for source in itertools.chain.from_iterable(copies):
        assert any(source == known or known.startswith(f"{source}/") for known in references.input_files(image)), source


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_image_starts_from_the_base_and_runs_as_a_numeric_user(image: Image) -> None:
    lines = (references.ROOT / image.containerfile).read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert set(bases) <= {"${BASE}", "locked"}
    assert "USER 65532" in lines


def test_guard_image_holds_the_guard_and_its_rules_only() -> None:
    (guard,) = select(["guard"])
    packages = {path.split("/")[2] for path in references.input_files(guard) if path.startswith("operator/")}
    assert packages == {"__init__.py", "core", "guard", "leases"}


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ImageError, match=r"gatway(.|\n)*operator, gateway"):
        select(["gatway"])


def test_names_are_built_once_and_in_the_order_given() -> None:
    assert [image.name for image in select(["guard", "operator", "guard"])] == ["guard", "operator"]


def test_base_is_the_option_then_the_environment_then_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHESCOPE_BASE", "python:3.12-slim")
    assert references.chosen_base("python:3.11-slim") == "python:3.11-slim"
    assert references.chosen_base(None) == "python:3.12-slim"
    monkeypatch.delenv("CACHESCOPE_BASE")
    assert references.chosen_base(None) == references.own_base()
