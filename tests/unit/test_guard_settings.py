"""Settings: a missing or bad variable is named, and the guard then refuses everything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cachescope.core.caches import Caching
from cachescope.core.errors import SpecError
from cachescope.guard import settings as settings_page
from cachescope.guard.asgi import Guard, Running
from cachescope.guard.process import GuardProcess
from cachescope.guard.settings import read_settings
from cachescope.guard.start import Misconfigured, make_process
from tests.unit.guard_fakes import POOL, Engine, Server, scope

COMPLETE = {
    "CACHESCOPE_POOL_UID": "pool-uid",
    "CACHESCOPE_POOL_TARGET": POOL,
    "CACHESCOPE_POD_UID": "pod-uid",
    "CACHESCOPE_PERMIT_KEYS_DIR": "/keys",
    "CACHESCOPE_NAMESPACE": "models",
    "CACHESCOPE_POOL": "tiny",
    "CACHESCOPE_POD_NAME": "tiny-0",
    "KUBERNETES_SERVICE_HOST": "fd00::1",
    "KUBERNETES_SERVICE_PORT": "443",
    "CACHESCOPE_MODEL_PATH": "/model",
}
VALUES = {
    "CACHESCOPE_LEASE_SECONDS": ["0", "3601", "x", "-1", "1.5"],
    "CACHESCOPE_ON_LOSS": ["deny", "Allow"],
    "CACHESCOPE_CLEANUP": ["reset", "RestartPods"],
    "CACHESCOPE_FRESH_SECONDS": ["0", "3601", "x"],
    "CACHESCOPE_METRICS_PORT": ["65536", "x"],
    "CACHESCOPE_MAX_BODY_BYTES": ["0", "1e6"],
    "CACHESCOPE_USED_PERMITS": ["0", "²"],
    "CACHESCOPE_CACHING": ["salted", "onecache", "PerTenant"],
    "CACHESCOPE_ENGINE_TYPE": ["-", "a b", "x" * 64, "vLLM\n"],
}
BAD = [({**COMPLETE, name: value}, name) for name, values in VALUES.items() for value in values]
MISSING = [({key: value for key, value in COMPLETE.items() if key != name}, name) for name in COMPLETE]


def test_defaults_are_those_of_the_table() -> None:
    settings = read_settings(COMPLETE)
    assert (settings.lease_ms, settings.metrics_port, settings.max_body_bytes) == (60_000, 9400, 16_777_216)
    assert (settings.used_permits, settings.model_path) == (200_000, Path("/model"))
    assert (settings.fresh_ms, settings.state_folder) == (120_000, None)
    assert (settings.engine_type, settings.caching) == ("vLLM", Caching.SALTED)
    assert settings.api_folder == Path("/var/run/secrets/kubernetes.io/serviceaccount")


@pytest.mark.parametrize(("on_loss", "fresh_ms"), [("Fresh", 7000), ("Deny", 0), ("", 7000)])
def test_without_a_right_nothing_is_served_for_longer_than_the_pool_allows(on_loss: str, fresh_ms: int) -> None:
    changes = {"CACHESCOPE_ON_LOSS": on_loss, "CACHESCOPE_FRESH_SECONDS": "7", "CACHESCOPE_STATE_DIR": "/state"}
    settings = read_settings({**COMPLETE, **changes})
    assert (settings.fresh_ms, settings.state_folder) == (fresh_ms, Path("/state"))


@pytest.mark.parametrize(("cleanup", "resets"), [("", False), ("None", False), ("Reset", True)])
def test_the_cache_is_reset_where_the_pool_says_so(cleanup: str, resets: bool) -> None:
    assert read_settings({**COMPLETE, "CACHESCOPE_CLEANUP": cleanup}).resets_cache is resets


@pytest.mark.parametrize("name", ["vLLM", "SGLang", "TensorRT-LLM", "llama.cpp", "TGI", "LMDeploy", "custom", "x" * 63])
def test_a_guard_takes_the_name_of_any_engine(name: str) -> None:
    assert read_settings({**COMPLETE, "CACHESCOPE_ENGINE_TYPE": name}).engine_type == name


@pytest.mark.parametrize(("host", "url"), [("fd00::1", "https://[fd00::1]:443"), ("10.96.0.1", "https://10.96.0.1:443")])
def test_the_api_server_is_found_where_every_container_is_told(host: str, url: str) -> None:
    assert read_settings({**COMPLETE, "KUBERNETES_SERVICE_HOST": host}).api_url == url


def test_the_table_of_settings_names_every_variable_that_is_read() -> None:
    class Asked(dict[str, str]):
        def __init__(self) -> None:
            super().__init__(COMPLETE)
            self.names: set[str] = set()

        def get(self, name: str, default: Any = None) -> Any:
            self.names.add(name)
            return super().get(name, default)

    asked = Asked()
    read_settings(asked)
    table = set(re.findall(r"^\| `(CACHESCOPE_\w+)` \|", str(settings_page.__doc__), re.MULTILINE))
    assert {name for name in asked.names if name.startswith("CACHESCOPE_")} == table


@pytest.mark.parametrize(
    ("environ", "name"), [*BAD, *MISSING, ({**COMPLETE, "CACHESCOPE_POOL_TARGET": "A" * 64}, "CACHESCOPE_POOL_TARGET")]
)
def test_a_missing_or_bad_variable_is_named(environ: dict[str, str], name: str) -> None:
    with pytest.raises(SpecError, match=name):
        read_settings(environ)


@pytest.mark.parametrize(
    ("environ", "args"),
    [({}, []), (COMPLETE, ["--headless"]), ({**COMPLETE, "VLLM_SERVER_DEV_MODE": "1"}, []), ({**COMPLETE, "PYTHONPATH": "/x"}, [])],
)
async def test_a_misconfigured_guard_refuses_everything(environ: dict[str, str], args: list[str]) -> None:
    process = make_process(environ, args)
    assert isinstance(process, Misconfigured)
    engine = Engine()
    guard = Guard(engine, Running(process))
    for method, path in [("GET", "/health"), ("GET", "/metrics"), ("POST", "/v1/completions")]:
        server = Server([b""])
        await guard(scope(method, path), server.receive, server.send)
        assert (server.status, server.code) == (503, "guard_misconfigured")
    assert engine.scopes == []


def test_a_complete_environment_makes_a_guard_with_its_own_boot_id() -> None:
    first, second = make_process(COMPLETE, []), make_process(COMPLETE, [])
    assert isinstance(first, GuardProcess)
    assert isinstance(second, GuardProcess)
    assert len(first.boot_id) == 32
    assert first.boot_id != second.boot_id
