import ast
import logging
import re
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from bot.config.built_in_extensions import BUILT_IN
from bot.config.settings import built_in_providers
from tests.patience import WITHIN_S

# How long an example takes is the machine's business. The same code gets the same examples; `make slow` draws others,
# and twice as many.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("others", deadline=None)
settings.load_profile("same")

TESTS = Path(__file__).parent
OURS = ("bot", "threads", "transports")
"""Our own loggers, whose levels a command may set."""
NOT_QUICK = {line for line in (TESTS / "not_quick.txt").read_text().splitlines() if not line.startswith("#")}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what tests/not_quick.txt lists")


def pytest_configure(config: pytest.Config) -> None:
    if missing := [path for path in NOT_QUICK if not (TESTS / path).exists()]:
        raise pytest.UsageError(f"tests/not_quick.txt names what is not there: {', '.join(missing)}")
    if config.getoption("quick"):
        settings.load_profile("quick")
    elif config.option.markexpr == "slow":
        settings.load_profile("others")


PROVIDERS = [(name, one.kind) for name, one in built_in_providers().items()] + [("openai-compatible",) * 2]
MISSING = [one for one in BUILT_IN.values() if not one.is_here]
"""The extensions whose folder was deleted."""
CALL = r'(\(|(?<![\w\])])\[|"-m", "bot", |BOT, )"{}"'
NEEDS = [rf"{one.package}(\.| import)" for one in MISSING]
NEEDS += [CALL.format(command) for one in MISSING for command in one.commands]
NEEDS += [f'"{name}[/"]' for name, kind in PROVIDERS if any(kind in one.models for one in MISSING)]
NEEDS += [f'"{key.rpartition(".")[2]}"' for one in MISSING for key in one.keys]
TOOLS = {"files": ("list_files", "read_file"), "skills": ("load_skill",)}
NEEDS += [tool for name, tools in TOOLS.items() if not BUILT_IN[name].is_here for tool in tools]
"""What a test module has that needs one of them: an import, a command, a model, a setting, or a tool."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out before the import: to import the slow modules takes as long as to run the quick ones.

    What needs an extension that is not here is left out too.
    """
    if not collection_path.is_relative_to(TESTS):
        return None
    path = collection_path.relative_to(TESTS).as_posix()
    if path.replace("/", ".") in [one.package for one in MISSING]:
        return True
    source = collection_path if collection_path.is_file() else collection_path / "conftest.py"
    needs = MISSING and path != "." and source.suffix == ".py" and source.exists() and _needs_missing(source)
    return True if needs or (config.getoption("quick") and path in NOT_QUICK) else None


@cache
def _needs_missing(path: Path) -> bool:
    """Return whether a module of the tests names one that is missing, or imports another of them that does."""
    text = path.read_text()
    if any(re.search(one, text) for one in NEEDS):
        return True
    imports = (one for one in ast.parse(text).body if isinstance(one, ast.ImportFrom) and one.module)
    names = (f"{one.module}.{name}" for one in imports for name in ("", *(two.name for two in one.names)))
    paths = (TESTS.parent / f"{name.strip('.').replace('.', '/')}.py" for name in names)
    return any(map(_needs_missing, (one for one in paths if one.is_relative_to(TESTS) and one.exists())))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long: at the end each worker finds something short to take from another.

    First comes what may take longer than any other test by its own mark.
    """
    patience = {item: item.get_closest_marker("timeout") for item in items}
    long = {item for item, mark in patience.items() if mark and mark.args[0] > 300}
    items.sort(key=lambda item: (item not in long, not NOT_QUICK.intersection(_folders_of(item.path))))


def _folders_of(path: Path) -> set[str]:
    """Return the names that tests/not_quick.txt could have for a module: its own, and those of its folders."""
    inside = path.relative_to(TESTS)
    return {one.as_posix() for one in (inside, *inside.parents)}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked to need an extension that is not here, or all of them."""
    for mark in item.iter_markers("needs"):
        if any(BUILT_IN[name] in MISSING for name in mark.args or BUILT_IN):
            pytest.skip("an extension is not here")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def landed_posts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a dead process has posted to a fake is there at once; in the simulation it comes late."""
    if "sim" not in request.path.parts:
        monkeypatch.setattr("threads.delivery.LATE_POST_S", 0.1)


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Logging is as it was: a command that ran in this process configured its own."""
    root = logging.getLogger()
    sinks, levels = set(root.handlers), {one: one.level for one in (root, *map(logging.getLogger, OURS))}
    yield
    for handler in [one for one in root.handlers if one not in sinks and type(one).__name__ == "Sink"]:
        root.removeHandler(handler)
    for logger, level in levels.items():
        logger.setLevel(level)
    logging.disable(logging.NOTSET)
    logging.captureWarnings(capture=False)


@pytest.fixture(autouse=True)
def joined_threads() -> Iterator[None]:
    """No thread outlives its test but those of pools: one that draws a random number fails a test of Hypothesis."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith(("AnyIO worker", "asyncio", "disk")):
            thread.join(WITHIN_S)
            assert not thread.is_alive(), f"the thread {thread.name!r} goes on"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Write captured text so that a worker of pytest-xdist can hand it over: it takes no lone surrogates."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "replace").decode()) for name, text in report.sections]
    return report
