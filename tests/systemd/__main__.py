"""`python -m tests.systemd [NAME…]`: start a real systemd, prove the unit on it, print what was seen.

It takes root and a systemd program (Debian: `apt install systemd`), about ten minutes, and leaves nothing behind.
Exit code 0 when all holds, 1 when something does not, 77 when no systemd can be started here. ``--keep`` keeps the
folder with everything that was said.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def main() -> None:
    keep, chosen = "--keep" in sys.argv, [word for word in sys.argv[1:] if not word.startswith("--")]
    shared = Path(tempfile.mkdtemp(prefix="threadfast-systemd-"))
    (shared / "out").mkdir()
    copy = shared / "checkout"  # so that nobody's editing meanwhile is a new version
    shutil.copytree(CHECKOUT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "data"))
    command = ["bash", str(copy / "tests/systemd/boot.sh"), str(shared), str(copy), sys.base_prefix]
    command += [sysconfig.get_paths()["purelib"], "env", "PYTHONPATH=/opt/packages:/opt/checkout"]
    command += ["/opt/python/bin/python3", "-m", "tests.systemd.inside", *chosen]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    ended = threading.Event()
    telling = threading.Thread(target=tell, args=(shared / "out/results", ended))
    telling.start()
    said = process.communicate()[0]
    ended.set()
    telling.join()
    print(said, end="")
    if process.returncode == 0:
        print(f"all of it holds ({time.monotonic() - began:.0f} s)")
    if keep or process.returncode == 1:
        print(f"kept: {shared}")
    else:
        shutil.rmtree(shared)
    sys.exit(process.returncode)


def tell(results: Path, ended: threading.Event) -> None:
    """Print a line for each result, as it comes."""
    told = 0
    while True:
        last = ended.wait(0.2)
        lines = results.read_text().splitlines() if results.exists() else []
        for line in lines[told:]:
            found = json.loads(line)
            state = "ok  " if found["ok"] else "FAIL"
            print(f"{state} {found['name']:14} {found['took_s']:5.1f} s  {found['saw']}", flush=True)
        told = len(lines)
        if last:
            return


if __name__ == "__main__":
    main()
