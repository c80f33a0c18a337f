#!/opt/llama/bin/python
"""llama.cpp's own HTTP server from the package `xllamacpp`, with the options of `llama-server` that pools and tests use.

The package has the server as a library, and no program that reads a command line. An option that is not listed here is refused, as
the server itself refuses what it does not know; a default is the server's. SIGTERM ends it at once, as it ends `llama-server`.
"""

import argparse
import signal
import sys
from typing import Any

import xllamacpp  # type: ignore[import-not-found] # only the image has it

STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",")}


def _addresses(text: str) -> list[str]:
    return [address.strip() for address in text.split(",")]


# Options, the parameter that each sets, and how its value is read.
VALUES: tuple[tuple[tuple[str, ...], str, Any], ...] = (
    (("-m", "--model"), "model.path", str),
    (("-a", "--alias"), "model_alias", _names),
    (("--host",), "hostnames", _addresses),
    (("--port",), "port", int),
    (("-c", "--ctx-size"), "n_ctx", int),
    (("-np", "--parallel"), "n_parallel", int),
    (("-b", "--batch-size"), "n_batch", int),
    (("-ub", "--ubatch-size"), "n_ubatch", int),
    (("-n", "--predict", "--n-predict"), "n_predict", int),
    (("-t", "--threads"), "cpuparams.n_threads", int),
    (("--threads-http",), "n_threads_http", int),
    (("-cram", "--cache-ram"), "cache_ram_mib", int),
    (("--cache-reuse",), "n_cache_reuse", int),
    (("-sps", "--slot-prompt-similarity"), "slot_prompt_similarity", float),
)
SWITCHES: tuple[tuple[tuple[str, ...], str, bool], ...] = (
    (("--cache-prompt",), "cache_prompt", True),
    (("--no-cache-prompt",), "cache_prompt", False),
    (("--cache-idle-slots",), "cache_idle_slots", True),
    (("--no-cache-idle-slots",), "cache_idle_slots", False),
    (("--metrics",), "endpoint_metrics", True),
    (("--slots",), "endpoint_slots", True),
    (("--no-slots",), "endpoint_slots", False),
    (("-kvu", "--kv-unified"), "kv_unified", True),
    (("-no-kvu", "--no-kv-unified"), "kv_unified", False),
    (("--offline",), "offline", True),
    (("--no-ui", "--no-webui"), "ui", False),
    (("--no-warmup",), "warmup", False),
)


def parser() -> argparse.ArgumentParser:
    """Builds the parser: an option that is not given leaves no trace, and of one that is given twice the last counts."""
    made = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for options, parameter, reading in VALUES:
        made.add_argument(*options, dest=parameter, type=reading, required="--model" in options)
    for options, parameter, value in SWITCHES:
        made.add_argument(*options, dest=parameter, action="store_const", const=value)
    return made


def apply(given: dict[str, Any], parameters: Any) -> None:  # noqa: ANN401 - xllamacpp's own type
    """Sets the parameters that were given.

    Args:
        given: Values by the parameter's name, with a dot for a part of a part.
        parameters: The server's.
    """
    for name, value in given.items():
        *parts, last = name.split(".")
        place = parameters
        for part in parts:
            place = getattr(place, part)
        setattr(place, last, value)


def main() -> None:
    """Serves until SIGTERM."""
    # Blocked before the server has threads, so that none of them takes the signal; process 1 would not die of it either.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    parameters = xllamacpp.CommonParams()
    # As llama-server: its port, and a model in a file.
    apply({"port": 8080, **vars(parser().parse_args())}, parameters)
    server = xllamacpp.Server(parameters)
    sys.stderr.write(f"listening at {server.listening_address}\n")
    signal.sigwait(STOPPING)


if __name__ == "__main__":
    main()
