.PHONY: demo serve test test-rest sample preloaded anywhere check parity bench cuda

PYTHON ?= python3
MLX ?= cpu# MLX backend outside macOS: cpu, cuda12 or cuda13

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet
INSTALL := $(PIP) --constraint constraints.txt --editable

# MLX's Linux wheel includes a slow reference BLAS; OpenBLAS, if installed, is preloaded and about 35 times faster
BLAS := $(firstword $(wildcard /usr/lib/*-linux-gnu/openblas-pthread/libopenblas.so.0 \
	/usr/lib/*-linux-gnu/libopenblas.so.0 /usr/lib64/libopenblas.so.0))
FAST := $(if $(BLAS),env LD_PRELOAD=$(BLAS))

demo: .venv/installed
	$(FAST) $(BIN)/convert-weights --hf-path tts_core/voice/dia --codec tts_core/voice/codec \
		--mlx-path build/voice --dtype float32 --force
	$(FAST) $(BIN)/mlx-port generate --model build/voice --seed 1 --output demo.wav \
		--text "[S1] Hello, this is a voice made by a small network."

serve: .venv/installed-serve
	$(FAST) $(BIN)/mlx-port serve

# one worker per core, one thread each; idle workers take over queued tests of others
PYTEST = $(FAST) env MLX_ENABLE_TF32=0 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

test: .venv/installed-dev
	$(PYTEST)

# the tests that `make test` leaves out: those marked rest
test-rest: .venv/installed-dev
	$(PYTEST) -m "rest and not slow"

# print the BLAS that is preloaded for tests, if any
preloaded:
	@echo $(BLAS)

# a sample of every file of tests, in one process, with no BLAS preloaded
sample: .venv/installed-dev
	env MLX_ENABLE_TF32=0 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --sample -m "not slow"

# the sample in some twenty other surroundings (noxfile.py), a line for each; an hour. ONLY="lowest wheel": only these
anywhere: .venv/installed-dev
	$(BIN)/python -m nox $(if $(ONLY),--session $(ONLY))

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

parity: .venv/installed-dev
	$(FAST) env MLX_ENABLE_TF32=0 $(BIN)/python -m pytest -m "not slow" tests/parity tests/oracles tests/golden

bench: .venv/installed-dev
	for file in benchmarks/*.py; do echo "== $$file"; $(FAST) $(BIN)/python $$file || exit 1; done

# on an NVIDIA GPU, with the PyTorch that PYTHON has: nothing is installed
cuda:
	$(PYTHON) -m pytest -m cuda tests/torch_ref

# by hash, if MLX is for the CPU or for Apple silicon; torch, whose builds differ by index, by version only
.venv/installed: pyproject.toml constraints.txt locks/run.txt | $(BIN)/python
ifeq ($(MLX),cpu)
	$(PIP) --require-hashes --requirement locks/run.txt
	$(PIP) --no-deps --editable .
else
	$(INSTALL) ".[$(MLX)]"
endif
	touch $@

.venv/installed-serve: .venv/installed locks/serve.txt
ifeq ($(MLX),cpu)
	$(PIP) --require-hashes --requirement locks/serve.txt
else
	$(INSTALL) ".[$(MLX),serve]"
endif
	touch $@

.venv/installed-dev: pyproject.toml constraints.txt locks/dev.txt | $(BIN)/python
ifeq ($(MLX),cpu)
	$(PIP) --require-hashes --requirement locks/dev.txt
	$(INSTALL) ".[torch]"
else
	$(INSTALL) ".[$(MLX),torch,test,dev]"
endif
	touch .venv/installed $@

$(BIN)/python:
	$(PYTHON) -m venv .venv
