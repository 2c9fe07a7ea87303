"""Serves a LiteLLM proxy in front of another server until its input ends; run by the Python that has `litellm`.

    python litellm_proxy.py URL [drop_params]

Prints its address once it answers. The model ``small`` is the one that the server at *URL* has.
"""

import json
import os
import socket
import sys
import tempfile
import threading


def main(url: str, *flags: str) -> None:
    known = {
        "model_name": "small",
        "litellm_params": {"model": "openai/small", "api_base": url, "api_key": "none"},
    }
    settings = {"model_list": [known], "litellm_settings": {"num_retries": 0, **dict.fromkeys(flags, True)}}
    with (
        tempfile.NamedTemporaryFile("w", suffix=".yaml") as file,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        json.dump(settings, file)  # JSON is YAML.
        file.flush()
        os.environ |= {
            "CONFIG_FILE_PATH": file.name,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # Else it asks the network for prices.
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "True",  # On loopback, for a test.
        }
        import uvicorn  # noqa: PLC0415
        from litellm.proxy.proxy_server import app  # noqa: PLC0415 - reads its settings as it is imported

        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        threading.Thread(
            target=lambda: (sys.stdin.read(), setattr(server, "should_exit", True)), daemon=True
        ).start()
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        server.run([listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
