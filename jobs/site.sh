# shellcheck shell=bash disable=SC2034  # the batch scripts read these
# Settings of your site; the only file to edit.  Another file can be named: MA_SITE=FILE jobs/submit ...

# What sbatch is given beside the script's own directives; empty where your site has a default.
MA_ACCOUNT=
MA_PARTITION=

# How ranks are started: srun or mpirun, and with which options.
MA_LAUNCHER=srun
MA_SRUN_OPTIONS=(--mpi=pmi2 --cpu-bind=cores) # MPICH, Intel MPI: pmi2; Open MPI: pmix; Cray: cray_shasta
MA_MPIRUN_OPTIONS=()

# Which MPI library, for the knobs of the vendor sweep: mpich (also Cray's), openmpi or intel.
MA_VENDOR=mpich

# Where records go; on a file system that all nodes see.
MA_RESULTS=results

# A job that its time limit or a preemption ended puts itself into the queue again, and goes on where it was: yes or no.
MA_REQUEUE=yes

# Modules, virtual environment, variables; called once at the start of each job.
site_environment() {
    # module load python openmpi
    # . "$HOME/ma/bin/activate"
    :
}

# The same for GPU jobs, after site_environment: what makes the MPI library take device pointers.
site_gpu_environment() {
    case $MA_VENDOR in
        openmpi) export OMPI_MCA_pml=ucx OMPI_MCA_opal_cuda_support=1 ;;
        mpich) export MPICH_GPU_SUPPORT_ENABLED=1 MPIR_CVAR_ENABLE_GPU=1 ;;
        intel) export I_MPI_OFFLOAD=1 ;;
    esac
    export UCX_TLS=${UCX_TLS:-rc,sm,self,cuda_copy,cuda_ipc,gdr_copy} UCX_MEMTYPE_CACHE=n
}
