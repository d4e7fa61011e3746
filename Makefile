# The same commands here and in CI. They write only inside the checkout. All names are relative, so that its path
# may contain spaces.

.DEFAULT_GOAL := run
.PHONY: install install-dev run test test-all retest mutants fuzz faults lint infra audit sbom wheel release generate docs bench gpu-check lock deploy clean

# The first of these that is Python 3.11 to 3.13; Python itself is never downloaded.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& { echo "$$p"; break; }; done)

# Programs and code of this checkout first: the code that runs is the code that DVC hashes. Bytecode is kept, also
# where the environment says otherwise: each process would compile all that it imports again, TensorFlow for seconds.
RUN = PATH="$$PWD/.venv/bin:$$PATH" PYTHONPATH="$$PWD/src" PYTHONDONTWRITEBYTECODE= DO_NOT_TRACK=1

# uv if installed, else from .venv; pip if uv cannot reach the package index (mirrors are usually set in pip.conf,
# which uv does not read): a new one, because that of Python 3.11 takes `prefect[x]==1` for no pin of `prefect`.
ENVIRONMENT = .venv
define install_packages
uv=$$(command -v uv || { .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt >&2 && echo .venv/bin/uv; }); \
{ [ -n "$$uv" ] && "$$uv" pip install -q --python $(ENVIRONMENT)/bin/python $(1); } \
|| { $(ENVIRONMENT)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/pip.txt \
	&& $(ENVIRONMENT)/bin/python -m pip install -q --disable-pip-version-check $(1); }
endef

# The programs in .venv name the folder in which they were installed: a moved or copied project makes it again.
install: .venv/installed
	@[ -L .venv ] || ! ls .venv/lib/python*/site-packages/_perennial_ml.pth >/dev/null 2>&1 \
	|| grep -qsxF "$$(pwd -P)/src" .venv/lib/python*/site-packages/_perennial_ml.pth \
	|| { echo "The project was moved or copied: making .venv again"; rm -rf .venv && $(MAKE) .venv/installed; }
	@[ -e .git ] || grep -qs no_scm .dvc/config.local || printf '[core]\n    no_scm = true\n' >> .dvc/config.local

.venv/installed: requirements/base.txt requirements/uv.txt pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "perennial needs Python 3.11, 3.12 or 3.13, and none is on the PATH. Install one, or set it: make PYTHON=/path/to/python3" >&2; exit 2; }
	@[ -x .venv/bin/python ] || "$(PYTHON)" -m venv .venv || { echo "Python could not create .venv; on Debian and Ubuntu install python3-venv." >&2; rm -rf .venv; exit 2; }
	@echo "Installing the packages of requirements/base.txt into .venv (2.7 GB; once)"
	@$(call install_packages,--require-hashes -r requirements/base.txt)
	@$(call install_packages,--no-deps --no-build-isolation -e .)
	@sha256sum requirements/base.txt > $@

# Each process of the tests imports these, and would compile them to bytecode at the same time.
IMPORTED = import prefect.main, prefect.server.api.server, dvc.repo, moto.server, boto3, hypothesis, matplotlib, sklearn, scipy

install-dev: install .venv/installed-dev

.venv/installed-dev: .venv/installed requirements/dev.txt
	@echo "Installing the packages of requirements/dev.txt into .venv"
	@$(call install_packages,--require-hashes -r requirements/dev.txt)
	@mkdir -p .work; export HOME="$$PWD/.work"; $(RUN) .venv/bin/python -c "import tensorflow, keras" 2> /dev/null & $(RUN) .venv/bin/python -c "$(IMPORTED)"; wait
	@sha256sum requirements/dev.txt > $@

# SET="train.epochs=2 'model.name=lenet'" writes values into params.yaml first. PIPELINE=birds: that in pipelines/birds.
run: install
	@$(RUN) $(if $(PIPELINE),PYTHONPATH="$$PWD:$$PWD/src" env -C "pipelines/$(PIPELINE)" python,.venv/bin/python) -m flows.retrain $(if $(filter command,$(origin SET)),--set "$$SET")

# Tests of a file share slow fixtures, so each file stays in one process. Files keep their order, in which slow ones
# come early: sorted by their number of tests, slow files would run last, in one process. One process more than there
# are cores: tests wait for servers and other processes a part of the time.
PYTEST = .venv/bin/python -m pytest -n $$(($$(nproc) < 4 ? $$(nproc) + 1 : 5)) --dist loadfile --no-loadscope-reorder
test: install-dev
	@$(RUN) $(PYTEST)

# With the slow tests: those marked `slow`.
test-all: install-dev
	@$(RUN) SLOW=1 $(PYTEST)

# The tests that failed last time, one after the other, if all of them are marked `timing`.
retest: install-dev
	@$(RUN) .venv/bin/python -m pytest --last-failed --last-failed-no-failures none --timing-only

# Changes of a module that its tests do not notice. MODULE=src/perennial/stages/gate.py TESTS="tests/a.py tests/b"
# SAMPLE=80 tries as many.
mutants: install-dev
	@$(RUN) .venv/bin/python -m benchmarks.mutants $(MODULE) $(TESTS)

lint: install-dev docs infra audit
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) codespell
	@$(RUN) proselint check --config docs/proselint.json --output-format compact README.md .github/CONTRIBUTING.md docs
	@$(RUN) check-jsonschema -q --builtin-schema vendor.github-workflows .github/workflows/*.yml

# Tools for infra/ and the lock files, in an environment of their own.
.work/infra/installed: private ENVIRONMENT = .work/infra
.work/infra/installed: requirements/infra.txt | install
	@.venv/bin/python -m venv .work/infra
	@$(call install_packages,--require-hashes -r requirements/infra.txt)
	@touch $@

# Dockerfile, compose, Kubernetes, work pools and systemd: every file is checked, and a mistake in each is caught.
# What needs a tool that is missing (systemd-analyze, caddy) is skipped.
infra: install-dev .work/infra/installed
	@$(RUN) PATH="$$PWD/.work/infra/bin:$$PWD/.venv/bin:$$PATH" .venv/bin/python -m pytest -rs tests/test_infra.py tests/test_infra_pools.py

# Known vulnerabilities of the packages in the lock, by the database of PyPI.
audit: .work/infra/installed
	@if .work/infra/bin/python -c 'import urllib.request as u; u.urlopen("https://pypi.org/pypi/pip/24.0/json", timeout=20)' 2>/dev/null; \
	then .work/infra/bin/pip-audit --progress-spinner off --strict --disable-pip --require-hashes -r requirements/base.txt; \
	else echo "audit: skipped; pypi.org, whose database lists vulnerabilities, cannot be reached"; fi

# What an image holds, with versions and hashes, in CycloneDX' format.
sbom: .work/infra/installed
	@PYTHONWARNINGS=ignore .work/infra/bin/cyclonedx-py requirements requirements/base.txt --pyproject pyproject.toml --output-reproducible -o .work/sbom.json
	@echo "sbom: .work/sbom.json"

# The wheel and the source archive, in .work/dist, installed and used once with a list of all packages and licences.
wheel: install .work/infra/installed
	@.venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@$(RUN) .venv/bin/python infra/release.py --check

# The same of a tested revision, and its tag.
release: lint test
	@.venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@$(RUN) .venv/bin/python infra/release.py

# Pages, pictures and version lists that are made from the code.
generate: install-dev
	@mkdir -p .work && $(RUN) perennial config --options >.work/options.md && mv .work/options.md docs/reference/options.md
	@$(RUN) .venv/bin/python docs/commands.py >.work/commands.md && mv .work/commands.md docs/reference/commands.md
	@$(RUN) .venv/bin/python docs/drawings.py
	@$(RUN) .venv/bin/python -m perennial.base.stage_state.environment

# The site of docs/, in .work/site; a broken link is an error.
docs: install-dev
	@$(RUN) NO_MKDOCS_2_WARNING=1 mkdocs build --strict -f infra/mkdocs.yml
	@echo "docs: .work/site/index.html"

# Hostile input, a minute for each reader.
fuzz: install-dev
	@$(RUN) PERENNIAL_FUZZED_TABLES=1000 .venv/bin/python -m pytest --timeout 0 tests/fuzz --hypothesis-profile=fuzz

# Kill a training 200 times, kill a save or fail it at every file operation, and lose workers; then evaluate every
# split size, batch size and number of devices.
faults: install-dev
	@$(RUN) KILLS=200 FAULTS=all .venv/bin/python -m pytest --timeout 0 -rs tests/faults tests/model/training/test_checkpoints.py \
		tests/model/training/test_checkpoint_kills.py tests/model/training/test_distributed.py tests/model/evaluation/test_devices.py

# SUBJECTS="convert validate memory main_job"; default: all.
bench: install-dev
	@$(RUN) .venv/bin/python -m benchmarks $(SUBJECTS)

# Whether perennial works on this machine's GPUs, and how fast: .work/gpu-check/report.md. QUICK=1: fewer rows. DATA: a
# folder with the data sets' archives. The packages for GPUs, in an environment of their own, only with NVIDIA's driver.
GPU = $(wildcard /proc/driver/nvidia/version /usr/lib/wsl/lib/nvidia-smi)
gpu-check: $(if $(GPU),.work/gpu/installed,install)
	@$(if $(GPU),:,echo "gpu-check: no NVIDIA driver here; without a GPU the rows run on the CPU in small sizes")
	@$(RUN) $(if $(GPU),.work/gpu,.venv)/bin/python -m benchmarks.gpu_check $(if $(QUICK),--quick)

.work/gpu/installed: private ENVIRONMENT = .work/gpu
.work/gpu/installed: requirements/gpu.txt | install
	@echo "Installing the packages of requirements/gpu.txt into .work/gpu (once)"
	@.venv/bin/python -m venv .work/gpu
	@$(call install_packages,--require-hashes -r requirements/gpu.txt)
	@$(call install_packages,--no-deps --no-build-isolation -e .)
	@touch $@

# Register the deployments of prefect.yaml on the server of PREFECT_API_URL.
deploy: install
	@$(RUN) .venv/bin/python -m tasks.deploy

# All lock files come from one resolution, so that their versions agree.
EXTRAS = docker gpu heic keras-hub kubernetes mlflow onnx ray tune
LOCK = .venv/bin/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --no-strip-extras --python-version 3.11
lock: install
	@.venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@mkdir -p .work && cat requirements/dev.txt requirements/gpu.txt >.work/all.txt # uv keeps the versions that it finds there
	@$(LOCK) $(UPGRADE) pyproject.toml --all-extras --group dev -o .work/all.txt
	@$(LOCK) pyproject.toml --group build -c .work/all.txt -o requirements/base.txt
	@for extra in $(EXTRAS); do $(LOCK) pyproject.toml --group build --extra $$extra -c .work/all.txt -o requirements/$$extra.txt || exit 1; done
	@$(LOCK) pyproject.toml $(addprefix --extra ,$(filter-out gpu,$(EXTRAS))) --group dev -c .work/all.txt -o requirements/dev.txt
	@$(LOCK) $(UPGRADE) benchmarks/peers/peers.in -o requirements/peers.txt
	@$(LOCK) $(UPGRADE) benchmarks/peers/slim.in -o requirements/reference.txt
	@$(LOCK) $(UPGRADE) tests/support/infra.in -o requirements/infra.txt
	@$(LOCK) $(UPGRADE) benchmarks/peers/tfdv.in -o benchmarks/peers/tfdv.txt
	@$(LOCK) $(UPGRADE) benchmarks/peers/drift.in -o benchmarks/peers/drift.txt
	@$(RUN) .venv/bin/python -m perennial.base.stage_state.environment

# Remove what `make` and the stages made. Downloads stay, and so do the data and models of past runs in .dvc/cache.
clean:
	@if $(RUN) .venv/bin/python -c 'import perennial.base.stage_state.outputs' 2>/dev/null; \
	then $(RUN) .venv/bin/python -m perennial.base.stage_state.outputs; \
	else echo "the outputs of the stages stay: removing them needs the packages (make install)"; fi
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache
