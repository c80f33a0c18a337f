"""Permit keys from a folder: they reload in place, and no content reaches a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachescope.core.errors import SpecError
from cachescope.core.keys import Key
from cachescope.core.permits import write_permit
from cachescope.guard.key_folder import KeyFolder, read_keys
from tests.unit.guard_fakes import KEY, World

NEWER = Key("2027-01-01", b"n" * 32)


def _write(folder: Path, key: Key) -> None:
    (folder / key.id).write_text(key.secret.hex() + "\n")


def test_a_folder_as_kubernetes_mounts_it_is_read(tmp_path: Path) -> None:
    hidden = tmp_path / "..2026_11_30"
    hidden.mkdir()
    _write(hidden, KEY)
    (tmp_path / "..data").symlink_to(hidden.name)
    (tmp_path / KEY.id).symlink_to(f"..data/{KEY.id}")
    ring = read_keys(tmp_path)
    assert ring is not None
    assert (ring.current, list(ring.others)) == (KEY, [KEY.id])


def test_the_newest_key_is_current_and_older_ones_verify(tmp_path: Path) -> None:
    _write(tmp_path, NEWER)
    _write(tmp_path, KEY)
    ring = read_keys(tmp_path)
    assert ring is not None
    assert (ring.current, ring.find(KEY.id)) == (NEWER, KEY)


def test_an_empty_folder_holds_no_key(tmp_path: Path) -> None:
    assert read_keys(tmp_path) is None


@pytest.mark.parametrize("content", ["", "not hex", "ab" * 31, "ab" * 33, "\u00e9"])
def test_a_file_without_a_key_is_refused_without_its_content(tmp_path: Path, content: str) -> None:
    (tmp_path / "k1").write_text(content)
    with pytest.raises(SpecError, match="k1 does not hold 64 hexadecimal digits") as caught:
        read_keys(tmp_path)
    assert not content or content not in str(caught.value)


async def test_keys_reload_in_place_when_an_unknown_one_comes(tmp_path: Path) -> None:
    world = World()
    _write(tmp_path, KEY)
    world.process.keys = KeyFolder(tmp_path, world.clock)
    await world.process.keys.reload()
    _write(tmp_path, NEWER)
    rotated = write_permit(NEWER, world.permit())
    assert (await world.ask(rotated)).status == 401
    world.clock.now += 1000
    assert (await world.ask(rotated)).status == 200
    assert (await world.ask(world.permit())).status == 200
    (tmp_path / KEY.id).unlink()
    world.clock.now += 1000
    await world.process.keys.reload()
    assert (await world.ask(world.permit())).status == 401


async def test_a_folder_that_cannot_be_read_keeps_the_known_keys(tmp_path: Path) -> None:
    _write(tmp_path, KEY)
    world = World()
    folder = KeyFolder(tmp_path, world.clock)
    await folder.reload()
    (tmp_path / "k2").write_text("broken")
    await folder.reload()
    assert folder.ring is not None
    assert folder.ring.current == KEY
