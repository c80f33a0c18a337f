"""Serves a GGUF model by llama.cpp's own HTTP server, inside its Python package: ``serve_llama_cpp.py MODEL NAME PORT``."""

import signal
import sys

# Only the engine's own environment has it.
import xllamacpp  # type: ignore[import-not-found]

CONTEXT = 32768


def main() -> None:
    """Serve until told to end."""
    path, name, port = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = {name}
    params.n_ctx = CONTEXT
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.endpoint_metrics = True
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
