"""`make chat` in a checkout whose program is one line: real make, venv and pip; the package is built by a file of ours."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from io import StringIO
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
WITHIN_S = 60

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = '''
"""Builds an editable wheel by hand, once it may: `go` is a FIFO that a test opens to let it go on."""
import os, zipfile
here = os.path.dirname(os.path.abspath(__file__))

def build_editable(folder, *_):
    if os.path.exists("fails"):
        raise SystemExit("the network is down")
    if os.path.exists("go"):
        open("begun", "w").close()
        open("go").read()
    about, name = "threadfast-1.dist-info/", "threadfast-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("threadfast.pth", here)
        wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\\nName: threadfast\\nVersion: 1\\n")
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\\nGenerator: ours\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(about + "entry_points.txt", "[console_scripts]\\nthreadfast = bot:main\\n")
        wheel.writestr(about + "RECORD", "")
    return name
'''


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []
        (folder / "deploy").mkdir(parents=True)
        (folder / "bot").mkdir()
        shutil.copy(REPOSITORY / "Makefile", folder)
        shutil.copy(REPOSITORY / "deploy/environment.py", folder / "deploy")
        (folder / "pyproject.toml").write_text(PYPROJECT)
        (folder / "backend.py").write_text(BACKEND)
        (folder / "requirements.lock").write_text("# nothing\n")
        (folder / "bot/__init__.py").write_text("def main():\n    print('hello')\n")

    def start(self, *words: str, python: str = sys.executable) -> subprocess.Popen[str]:
        """Start make in a process group of its own."""
        command = ["make", "--no-print-directory", f"PYTHON={python}", *words]
        environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environ |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "LANG": "C.UTF-8"}
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        process = subprocess.Popen(command, cwd=self.folder, env=environ, **how)
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what a failed test left, with all its children."""
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def make(self, *words: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, python=python)
        out, err = process.communicate(timeout=WITHIN_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def chats(self) -> str:
        """Return what `make chat` said on standard error; it must have answered."""
        done = self.make("chat")
        assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
        return done.stderr


@pytest.fixture
def checkout(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("no make here")
    made = Checkout(tmp_path / "checkout")
    yield made
    made.close()


def test_a_set_up_whose_pip_failed_is_done_over_and_then_kept(checkout):
    (checkout.folder / "fails").touch()
    done = checkout.make("chat")
    assert done.returncode and "The next make starts it over." in done.stderr
    (checkout.folder / "fails").unlink()
    assert "Setting up" in checkout.chats()
    assert checkout.chats() == ""


@pytest.mark.slow
def test_a_set_up_killed_within_pip_is_done_over_once_its_pip_has_ended(checkout):
    os.mkfifo(checkout.folder / "go")
    first = checkout.start("chat")
    wait_for((checkout.folder / "begun").exists)
    [script] = children(first.pid)
    os.kill(script, signal.SIGKILL)
    first.kill()
    (checkout.folder / ".venv/left").touch()
    second = checkout.start("chat")
    assert second.stderr.readline().startswith("Another set-up is at work")
    with (checkout.folder / "go").open("w"):  # lets the first one's pip go on
        (checkout.folder / "go").unlink()
    out, err = second.communicate(timeout=WITHIN_S)
    assert (second.returncode, out) == (0, "hello\n"), err
    assert "Setting up" in err
    assert not (checkout.folder / ".venv/left").exists()


@pytest.mark.slow
def test_a_half_made_environment_of_python_itself_is_made_anew(checkout):
    """What `python -m venv` leaves on a Debian without python3-venv: a Python, and no pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout.folder / ".venv"], check=True)
    assert "Setting up" in checkout.chats()
    (checkout.folder / "pyproject.toml").write_text(f"{PYPROJECT}\n# newer\n")
    (checkout.folder / ".venv/kept").touch()
    assert checkout.chats() == ""
    assert (checkout.folder / ".venv/kept").exists(), "a newer checkout only brings the packages up to date"


class Window(StringIO):
    def isatty(self) -> bool:
        return True


def test_packages_are_counted_on_a_terminal_and_steps_are_told_elsewhere(tmp_path, monkeypatch):
    about = spec_from_file_location("environment", REPOSITORY / "deploy/environment.py")
    environment = module_from_spec(about)
    about.loader.exec_module(environment)
    monkeypatch.setattr(environment, "CHECKOUT", tmp_path)
    (tmp_path / "some.lock").write_text("a==1 \\\n    --hash=x\nb==2 \\\n    --hash=y\n")
    pip = "print('Collecting a==1\\n  Downloading a\\nCollecting b==2\\nInstalling collected packages: a, b')"
    shown = []
    for out in (StringIO(), Window()):
        monkeypatch.setattr(sys, "stderr", out)
        with (tmp_path / "some.lock").open() as held:
            environment.show(held.fileno(), sys.executable, "-c", pip, "some.lock")
            with pytest.raises(subprocess.CalledProcessError):
                environment.show(held.fileno(), sys.executable, "-c", "raise SystemExit(1)", "some.lock")
        shown.append(out.getvalue())
    assert shown[0] == "Getting 2 packages …\nInstalling 2 packages …\n"
    for part in (
        "Getting 2 packages … 50 %",
        "Getting 2 packages … 100 %",
        "Installing 2 packages … 100 %\r\x1b[K",
    ):
        assert part in shown[1]


@pytest.mark.parametrize(
    "how", [pytest.param("its Python went away", marks=pytest.mark.slow), "the checkout was moved"]
)
def test_an_environment_that_works_no_more_is_made_anew(checkout, tmp_path, how):
    environment = checkout.folder / ".venv"
    venv.create(environment, symlinks=True)
    (environment / ".installed").write_text("requirements.lock 0\n")
    if how == "its Python went away":
        (environment / "bin/python").unlink()
        (environment / "bin/python").symlink_to("/nowhere/python3")
    else:
        [packages] = environment.glob("lib/python3*/site-packages")
        for name in ("before/bot", "before/pip"):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "__init__.py").touch()
        (packages / "threadfast.pth").write_text(str(tmp_path / "before"))
    assert "does not work any more" in checkout.chats()


def test_a_python_without_ensurepip_is_told_with_the_package_that_brings_it(checkout, tmp_path):
    venv.create(tmp_path / "debian", symlinks=True)
    [packages] = (tmp_path / "debian").glob("lib/python3*/site-packages")
    (packages / "debian.pth").write_text("import sys; sys.modules['ensurepip'] = None")
    for _ in range(2):
        done = checkout.make("chat", python=str(tmp_path / "debian/bin/python3"))
        assert done.returncode
        assert "sudo apt install python3-venv" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_python_that_is_not_there_is_told(checkout):
    done = checkout.make("chat", python="python3.99")
    assert done.returncode and "python3.99 is not here" in done.stderr


def test_a_folder_of_somebody_is_not_emptied(checkout):
    mine = checkout.folder / "home" / "letter"
    mine.parent.mkdir()
    mine.write_text("dear")
    done = checkout.make("VENV=home", "chat")
    assert done.returncode and "no virtual environment" in done.stderr
    assert mine.read_text() == "dear"


def test_an_older_python_can_read_the_script_to_say_that_it_is_too_old():
    ast.parse((REPOSITORY / "deploy/environment.py").read_text(), feature_version=(3, 6))


def children(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def wait_for(condition) -> None:
    until = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
