"""Serves a model file by llama.cpp until its input ends; run by the Python that has `xllamacpp`.

    python llama.py FILE TOKENS [jinja]

Prints its address once it has loaded the model. *TOKENS* is the window. Without *jinja* it takes no tools.
"""

import sys

import xllamacpp


def main(file: str, tokens: str, jinja: str = "") -> None:
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.port = file, int(tokens), 1, 0
    params.use_jinja, params.warmup = bool(jinja), False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
