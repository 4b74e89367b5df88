#!/usr/bin/env bash
# Prove the package on a machine with one GPU, in under five minutes, without a network:
#
#   jobs/gpu_check.sh [FOLDER]      from the project's root; records and what was printed go to FOLDER (results/gpu)
#
# What must be there: python3 with mpi4py, numpy, h5py, ml_dtypes, rich, cupy, pytest, pytest-mpi, hypothesis; an MPI
# library with its mpirun; a driver.  The package itself is taken from this folder.  PYTHON and MPIRUN override the names.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
python=${PYTHON:-python3} mpirun=${MPIRUN:-mpirun} out=${1:-results/gpu}
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_mpi_yield_when_idle=1 MPI_ALLREDUCE_TIMEOUT=60
mkdir -p "$out"
failed=0

step() { # step SECONDS COMMAND ...
    local limit=$1
    shift
    printf '\n== %s\n' "$*"
    timeout "$limit" "$@" || { failed=1; echo "!! status $?"; }
}

check() {
    date -u '+%F %T UTC'
    nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current --format=csv || exit 2
    "$python" -c 'import cupy; print("CuPy", cupy.__version__, "CUDA", cupy.cuda.runtime.runtimeGetVersion())' || exit 2
    for ranks in 1 2 4; do
        step 60 "$mpirun" -n "$ranks" "$python" -m mpi_allreduce info
        step 90 "$mpirun" -n "$ranks" "$python" -m pytest -q --only-mpi -m "mpi and gpu" tests/runtime/test_device.py
    done
    for ranks in 2 4; do
        for place in host device; do
            step 60 env MPI_ALLREDUCE_REDUCE_ON=$place "$mpirun" -n "$ranks" "$python" -m mpi_allreduce bench \
                --memory device --algorithms vendor,nccl,ring,recursive_doubling,circulant,shared --codecs none,fp16,int8 \
                --sizes 64K,1M,16M,64M --buffers 2 --passes 2 --repetitions 3 50 --max-seconds 20 \
                --label "reduced on the $place, unless MPI takes device pointers" --out "$out/gpu.h5"
        done
    done
    [ $failed = 0 ] && echo "All steps passed." || echo "Some steps failed, see above."
    return $failed
}

check 2>&1 | tee "$out/gpu_check.txt"
