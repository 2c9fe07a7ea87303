# Two commands on a fresh machine with Python 3.11+ and make:  make chat  and  make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Two more than there are cores, six at most: half of a test's time is waiting for a process or a deadline.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(min(6, 2 + (os.cpu_count() or 1)))")

.PHONY: chat terminal test check lint slow crash simulate soak soak-short explore bench core-path docs lock clean systemd

chat: terminal $(VENV)/.installed
	@$(BIN)/threadfast chat || { code=$$?; $(MEND); exit $$code; }

# A chat that is killed leaves the terminal without echo, line ends and Ctrl-C: put right before the set-up, and after.
MEND = case "$$(stty -a 2>/dev/null)" in *-icanon*|*-isig*|*-icrnl*) \
	stty icanon echo isig iexten icrnl ixon opost onlcr; printf '\033[?2004l\033[?1l\033[?7h\033[?25h\033[0m';; esac
terminal:
	@$(MEND)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS)

check: $(VENV)/.installed-dev lint test

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

# Longer proofs, by hand: kill -9 rounds, simulated crashes, every state of a crashed disk, speed and memory.
crash: $(VENV)/.installed-dev
	$(BIN)/python -m tests.crash --rounds 200
	$(BIN)/python -m tests.crash --rounds 100 --stops
	$(BIN)/python -m tests.crash --over slack --rounds 40 --threads 10
	$(BIN)/python -m tests.crash --over discord --rounds 40 --threads 10
	$(BIN)/python -m tests.crash --over slack --rounds 35 --seconds-per-round 3 --within 20 --questions answered
	$(BIN)/python -m tests.crash --over slack --rounds 35 --seconds-per-round 3 --within 20 --questions ignored
	$(BIN)/python -m tests.crash --over discord --rounds 35 --seconds-per-round 3 --within 20

simulate: $(VENV)/.installed-dev
	$(BIN)/python -m tests.sim --seeds 10000

explore: $(VENV)/.installed-dev
	$(BIN)/python -m tests.explorer

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

core-path: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.core_path

# Half an hour of 500 threads on both platforms with faults on every side; `soak-short` is two minutes of thirty.
soak: $(VENV)/.installed-dev
	$(BIN)/python -m tests.soak --minutes 30 --threads 500

soak-short: $(VENV)/.installed-dev
	$(BIN)/python -m tests.soak --minutes 2 --threads 30 --rate 1 --seed 20261122

# Writes the documents that are drawn from the code: deploy/settings.md, deploy/architecture.md and others.
docs: $(VENV)/.installed-dev
	$(BIN)/python -m deploy.generate

# Writes the lock files anew; needs uv on the PATH. Extras are installed in the versions that are tested.
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url
lock:
	$(COMPILE) --output-file requirements.lock pyproject.toml --group build
	$(COMPILE) --output-file requirements-dev.lock pyproject.toml --group build --group dev
	for extra in browser otel; do \
	  $(COMPILE) --output-file requirements-$$extra.lock pyproject.toml --extra $$extra -c requirements-dev.lock || exit; \
	done

# Looks each time, and does something only where it has to: see deploy/environment.py.
$(VENV)/.installed $(VENV)/.installed-dev: FORCE
	@command -v $(PYTHON) > /dev/null || { echo "Threadfast needs Python 3.11 or newer, and $(PYTHON) is not here" >&2; exit 1; }
	@$(PYTHON) -I deploy/environment.py $(VENV) $(@F:.installed%=requirements%.lock)

FORCE:

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# A real systemd in namespaces runs the unit, the installer and the process: kill -9, hangs, faults. As root, 4 minutes.
systemd: $(VENV)/.installed-dev
	$(BIN)/python -m tests.systemd
