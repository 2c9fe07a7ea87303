"""Checks the data folder: that it exists, is ours and closed to others, on a durable disk with free space."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePath

from bot.host.checks import Context, Findings
from bot.store.layout import WRITTEN_BY_ADMIN, Step, files_of
from transports.shared.checks import Finding, State

OPEN = stat.S_IRWXG | stat.S_IRWXO
FULL_BYTES, LOW_BYTES = 100_000_000, 1_000_000_000
FEW_FILES = 1_000
SLOW_FSYNC_S = 0.2
MOST_FILES = 50_000
"""Files whose modes are checked; the mode of the folder decides anyway."""

SECRET = ("mcp-tokens", "web.json")
"""Files by which people are signed in. No backup copies them."""

AS_BOT = "Run this as the bot's user: sudo -u threadfast threadfast doctor."
KEEP = "Set `data` to a folder on a local disk."
FILESYSTEMS = {
    **dict.fromkeys(("tmpfs", "ramfs"), ("memory, not a disk", "The next reboot deletes everything.", KEEP)),
    **dict.fromkeys(
        ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"),
        ("over the network", "Locks and fsync may not work there.", KEEP),
    ),
    **dict.fromkeys(
        ("overlay", "aufs"),
        ("a container's own layer", "Removing the container deletes everything.", "Mount a volume there."),
    ),
}
"""What is wrong with a file system, what that means, and the fix."""

CLOSED = "`threadfast doctor --fix`, or chmod -R go-rwx {}"


async def check_folder(context: Context) -> Findings:
    data = context.settings.data
    if not await context.offload(is_open, data):
        yield await context.offload(_absent, data)
        return
    for check in (_folder, _writable, _modes, _space, _filesystem):
        yield Finding(f"data.{check.__name__[1:]}", *await context.offload(check, data))


def is_open(data: Path) -> bool:
    """Return whether it is a folder that this user may look into. Blocking; raises nothing."""
    return os.access(data, os.R_OK | os.X_OK) and data.is_dir()


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a folder above it cannot be opened
        return False


def _absent(data: Path) -> Finding:
    name, broken = "data.folder", "The bot cannot start."
    if not os.access(data, os.R_OK | os.X_OK) and _is_folder(data):
        found, fix = f"{data} cannot be opened by this user ({os.geteuid()})", AS_BOT
        return Finding(name, "fail", found, "The bot cannot start as this user.", fix)
    if os.path.lexists(data):
        return Finding(name, "fail", f"{data} is not a folder", broken, "Move it away.")
    above = next((folder for folder in data.parents if _is_folder(folder)), data.parents[-1])
    if os.access(above, os.W_OK | os.X_OK):
        found = f"{data} does not exist yet; the first start creates it"
        return Finding(name, "ok", found, fix="`threadfast doctor --fix` creates it now.")
    found = f"{data} does not exist and cannot be created: {above} is not writable"
    fix = "Create it and give it to the bot's user, or set another folder in `data`."
    return Finding(name, "fail", found, broken, fix)


Result = tuple[State, str] | tuple[State, str, str, str]
"""The state, what was found, what it means, and the fix."""


def _folder(data: Path) -> Result:
    owner, mine = data.stat().st_uid, os.geteuid()
    if owner == mine:
        return "ok", f"{data}"
    found = f"{data} belongs to user {owner}, and this is user {mine}"
    meaning = "The bot may not be able to read files that this user writes there, and the reverse."
    return "warn", found, meaning, AS_BOT


def _writable(data: Path) -> Result:
    began = time.monotonic()
    try:
        with tempfile.NamedTemporaryFile(dir=data, prefix="doctor-", suffix=".tmp") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        meaning = "The bot cannot store messages, so it accepts none."
        fix = "Make room, mount it read-write, or give it to the bot's user."
        return "fail", f"cannot write a file there ({error.strerror})", meaning, fix
    took = time.monotonic() - began
    found = f"written and fsynced in {took * 1000:.0f} ms"
    if took < SLOW_FSYNC_S:
        return "ok", found
    return "warn", found, "Each message waits this long before it is acknowledged.", KEEP


def too_open(data: Path) -> Iterator[Path]:
    """Return our own files and folders there that others may look into or write. Raises OSError."""
    if data.stat().st_mode & OPEN:
        yield data
    ours = (
        data / path
        for step in Step
        if step is not Step.FILES
        for path in files_of(data, step)
        if (_is_secret(path) if step is Step.NEVER else path.parts[0] not in WRITTEN_BY_ADMIN)
    )
    for path in islice(ours, MOST_FILES):
        if not path.is_symlink() and path.stat().st_mode & OPEN:
            yield path


def _is_secret(path: PurePath) -> bool:
    return bool(path.parts) and path.parts[0] in SECRET


def _modes(data: Path) -> Result:
    try:
        open_paths = list(too_open(data))
    except OSError as error:
        found = f"cannot be read ({error.strerror}: {error.filename})"
        return "fail", found, "The bot cannot start.", "Give the folder to the bot's user: chown -R."
    if not open_paths:
        return "ok", "closed to others"
    more = f" and {len(open_paths) - 1} more" if len(open_paths) > 1 else ""
    meaning = "Conversations can be read by others on this machine."
    if secret := [path for path in open_paths if _is_secret(path.relative_to(data))]:
        open_paths.insert(0, secret[0])
        meaning = "Whoever reads it can act as the people who signed in."
    return "warn", f"open to others: {open_paths[0]}{more}", meaning, CLOSED.format(data)


def _space(data: Path) -> Result:
    volume = os.statvfs(data)
    free = volume.f_bavail * volume.f_frsize
    free_space = f"{free / 1e9:.1f} GB free" if free >= LOW_BYTES else f"{free / 1e6:.0f} MB free"
    full = "A full disk stops the bot: it can store no message."
    if volume.f_files and volume.f_favail < FEW_FILES:
        return "fail", f"room for {volume.f_favail} more files", full, "Delete what is not needed."
    if free >= LOW_BYTES:
        return "ok", free_space
    return "fail" if free < FULL_BYTES else "warn", free_space, full, "Make room, or move `data`."


def _filesystem(data: Path) -> Result:
    if (kind := filesystem(data, _mounts())) in FILESYSTEMS:
        what, meaning, fix = FILESYSTEMS[kind]
        return "warn", f"{kind}: {what}", meaning, fix
    return "ok", kind or "unknown on this system"


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""


def filesystem(data: Path, mounts: str) -> str:
    """Return a folder's file system by the lines of /proc/self/mountinfo, or "" if they do not name it."""
    best, kind = Path(), ""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        words = fields.split()
        if len(words) < 5 or not rest:
            continue
        point = Path(words[4].encode().decode("unicode_escape"))
        if data.resolve().is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, kind = point, rest.split()[0]
    return kind
