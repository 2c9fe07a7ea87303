"""Makes the virtual environment of a checkout for the Makefile: a whole one or none.

    python3 -I deploy/environment.py FOLDER LOCK

| what is in FOLDER                                     | what is done                        |
|-------------------------------------------------------|-------------------------------------|
| a mark for this lock file and this pyproject.toml     | nothing                             |
| a mark for others                                     | the packages are brought up to date |
| no mark, or a Python that does not find this checkout | everything is made anew             |

The mark is emptied before anything changes and filled in at the very end, so nothing is built on what a killed or
failed set-up left behind. Two set-ups never work at once: each holds a lock on the folder, and so does its pip, which
may outlive a killed parent. Any Python from 3.6 on can read this file, if only to say that it is too old.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
LEAST = "requirements.lock"
"""The other lock files contain all of this one."""

TOO_OLD = (
    "Threadfast needs Python 3.11 or newer, and this is {}.{}. Name another one: make PYTHON=python3.12 chat"
)
NO_VENV = (
    "This Python cannot make a virtual environment: the package python3-venv is missing.\n"
    "On Debian and Ubuntu:  sudo apt install {}-venv   and then the same make again."
)
NOT_OURS = (
    "{} has files in it and is no virtual environment, so it stays as it is. Name another folder with VENV="
)
BROKEN = "The environment in {} does not work any more. Making it anew …"
SETTING_UP = "Setting up (once) …"
WAITING = "Another set-up is at work in {}. Waiting for it …"
FAILED = "The set-up failed for the reason above. The next make starts it over."
STOPPED = "Stopped. The next make starts the set-up over."


def make(folder: Path, lock: str) -> None:
    """Make the environment in *folder* whole, with the packages of *lock*.

    Raises `SystemExit` with a sentence for people, `subprocess.CalledProcessError` and OSError.
    """
    if done(folder, lock):
        return
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(str(folder), os.O_RDONLY)  # until this process ends
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(WAITING.format(folder))
        fcntl.flock(held, fcntl.LOCK_EX)
        if done(folder, lock):
            return
    whole = runs(folder)
    if not whole:
        check(folder)
        say(BROKEN.format(folder) if marks(folder) else SETTING_UP)
    mark(folder).write_text("")
    if not whole:
        clear(folder)
        run(held, sys.executable, "-I", "-m", "venv", str(folder))
    pip = (str(folder / "bin/python"), "-I", "-m", "pip", "--disable-pip-version-check", "install")
    # The lock is complete, and Python compiles what it imports: both save a third of the time to the first reply.
    show(held, *pip, "--progress-bar=off", "--require-hashes", "--no-deps", "--no-compile", "-r", lock)
    run(held, *pip, "--quiet", "--no-build-isolation", "--no-deps", "-e", ".")
    mark(folder).write_text("".join(fingerprint(each) for each in (lock, LEAST)))


def done(folder: Path, lock: str) -> bool:
    """Say whether there is nothing to do."""
    return fingerprint(lock) in marks(folder) and runs(folder)


def runs(folder: Path) -> bool:
    """Say whether a set-up ended here, and its Python still finds this checkout.

    It does not after the system's Python went away, or the checkout was moved or copied.
    """
    look = (str(folder / "bin/python"), "-I", "-c", "import bot, pip; print(bot.__file__)")
    try:
        found = subprocess.run(look, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return False
    return bool(marks(folder)) and found.stdout.decode().strip() == str(CHECKOUT / "bot/__init__.py")


def mark(folder: Path) -> Path:
    """Return the file that says which set-ups ended here; empty while one is at work."""
    return folder / ".installed"


def marks(folder: Path) -> str:
    """Return what the mark says, `""` when there is none."""
    return mark(folder).read_text() if mark(folder).exists() else ""


def fingerprint(lock: str) -> str:
    """Return a line that changes with the packages."""
    contents = (CHECKOUT / lock).read_bytes() + (CHECKOUT / "pyproject.toml").read_bytes()
    return f"{lock} {hashlib.sha256(contents).hexdigest()}\n"


def check(folder: Path) -> None:
    """Raise `SystemExit` when this Python cannot make an environment, or not in that folder."""
    if sys.version_info < (3, 11):
        sys.exit(TOO_OLD.format(*sys.version_info))
    if importlib.util.find_spec("ensurepip") is None:
        name = Path(sys.executable).name
        sys.exit(NO_VENV.format(name if name.startswith("python3") else "python3"))
    if any(folder.iterdir()) and not (mark(folder).exists() or (folder / "pyvenv.cfg").exists()):
        sys.exit(NOT_OURS.format(folder))


def clear(folder: Path) -> None:
    """Delete all but the mark, which says whose folder this is."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(str(path))
        elif path != mark(folder):
            path.unlink()


def run(held: int, *command: str) -> None:
    """Run a command that holds the lock as well."""
    subprocess.run(command, cwd=str(CHECKOUT), pass_fds=(held,), check=True)


def show(held: int, *command: str) -> None:
    """Run pip, and show how many packages it has on a terminal, or else each step."""
    packages = len(re.findall(r"^\S+==", (CHECKOUT / command[-1]).read_text(), re.MULTILINE))
    drawn = sys.stderr.isatty()
    found, step = 0, ""
    with subprocess.Popen(command, cwd=str(CHECKOUT), pass_fds=(held,), stdout=subprocess.PIPE) as pip:
        for line in pip.stdout or ():
            before = step
            if line.startswith(b"Collecting "):
                found += 1
                step = f"Getting {packages} packages"
            elif line.startswith(b"Installing collected"):
                found, step = packages, f"Installing {packages} packages"
            if step and drawn:
                sys.stderr.write(f"\r\033[K{step} … {100 * found // max(packages, 1)} %")
                sys.stderr.flush()
            elif step != before:
                say(f"{step} …")
    if drawn:
        sys.stderr.write("\r\033[K")
    if pip.returncode:
        raise subprocess.CalledProcessError(pip.returncode, command)


def say(text: str) -> None:
    """Tell a person, and leave standard output to the program."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    try:
        make(Path(sys.argv[1]).absolute(), sys.argv[2])
    except (subprocess.CalledProcessError, OSError) as error:
        sys.exit(FAILED if isinstance(error, subprocess.CalledProcessError) else f"{error}\n{FAILED}")
    except KeyboardInterrupt:
        say(STOPPED)
        sys.exit(130)
