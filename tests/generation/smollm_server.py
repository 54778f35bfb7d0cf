"""Run a GGUF file as an OpenAI-style server until stdin ends; its address goes to stdout.

A process of its own: the server writes to stderr as it likes, and its memory goes with it.
"""

from __future__ import annotations

import sys

import xllamacpp


def serve(model: str, alias: str) -> None:
    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.model_alias = {alias}
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.n_ctx = 2048
    settings.n_parallel = 1
    settings.warmup = False
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(settings)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve(*sys.argv[1:])
