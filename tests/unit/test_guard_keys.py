"""Permit keys from a folder: they reload in place, and no content reaches a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachescope.core.errors import SpecError
from cachescope.core.keys import Key, KeyRing
from cachescope.core.permits import PERMIT_HEADER, permit_keys, write_permit
from cachescope.core.signed import key_id_of
from cachescope.gateway.exchange import Answer, Forward
from cachescope.guard.key_folder import KeyFolder, read_keys
from tests.unit.guard_fakes import KEY, World
from tests.unit.whole_path import POOL_UID, ROOT_KEYS, WholePath

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


@pytest.mark.parametrize("content", ["", "not hex", "ab" * 31, "ab" * 33, "AB" * 32, "\u00e9"])
def test_a_file_without_a_key_is_refused_without_its_content(tmp_path: Path, content: str) -> None:
    (tmp_path / "k1").write_text(content)
    with pytest.raises(SpecError, match="k1 does not hold 64 lower-case hexadecimal digits") as caught:
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


class Rotation:
    """A gateway whose root keys rotate, and a guard that learns of it when a test says so."""

    def __init__(self, folder: Path) -> None:
        self.path = WholePath(folder)
        self.roots = folder / "mounted" / "root-keys"
        (self.old,) = ROOT_KEYS.keys() - {"targets"}
        self.new = f"{self.old}-next"

    def rotate(self, *, drop_the_old: bool = False) -> None:
        """What the gateway reads at once."""
        (self.roots / self.new).write_text("7f" * 32)
        if drop_the_old:
            (self.roots / self.old).unlink()
        self.path.refresh()

    async def sync(self) -> None:
        """What the kubelet brings to the guard later; the next challenge tells the gateway."""
        self.path.process.keys.ring = permit_keys(self.ring, POOL_UID)
        self.path.write_lease()
        await self.prove_again()

    async def prove_again(self) -> None:
        """Let the next challenge come due."""
        self.path.clock_ms += 15_000
        await self.path.prove()

    @property
    def ring(self) -> KeyRing:
        return self.path.snapshot().keys.root

    async def decided(self) -> Forward | Answer:
        """What the gateway does with a request."""
        body = b'{"model":"tiny","messages":[{"role":"user","content":"hello"}]}'
        return await self.path.decide(self.path.credentials.api_keys["blue-carol"], body)

    async def served(self) -> tuple[str, int]:
        """The key of a request's permit, and what the guard says to it."""
        forward = await self.decided()
        assert isinstance(forward, Forward)
        return key_id_of(forward.set_headers[PERMIT_HEADER]), (await self.path.send(forward)).status


async def test_permits_pass_while_a_rotation_is_on_its_way_to_the_guard(tmp_path: Path) -> None:
    rotation = Rotation(tmp_path)
    await rotation.path.prove()
    rotation.rotate()
    assert await rotation.served() == (rotation.old, 200)
    await rotation.prove_again()
    assert await rotation.served() == (rotation.old, 200)
    await rotation.sync()
    assert await rotation.served() == (rotation.new, 200)


async def test_a_key_that_was_dropped_signs_no_more(tmp_path: Path) -> None:
    rotation = Rotation(tmp_path)
    await rotation.path.prove()
    rotation.rotate(drop_the_old=True)
    refused = await rotation.decided()
    assert isinstance(refused, Answer), "the guard's lease is signed with the dropped key: nothing is sent there"
    assert refused.reason == "no_endpoint"
    rotation.path.process.keys.ring = permit_keys(rotation.ring, POOL_UID)
    rotation.path.write_lease()
    assert await rotation.served() == (rotation.new, 200)
