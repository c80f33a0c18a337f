"""Stands where vLLM's `vllm.entrypoints.openai.api_server` is. A stub for tests, and never a product: see `e2e/stub_engine`."""

from e2e.stub_engine.server import main

if __name__ == "__main__":
    main()
