# shellcheck shell=bash
# What all batch scripts share.  They are submitted by jobs/submit from the project's root.

set -u
# shellcheck source=jobs/site.sh
. "${MA_SITE:-jobs/site.sh}"

# ma_run COMMAND...: on all ranks of the job.  A warning signal is passed on to them (as SIGUSR1, which srun and every
# mpirun hand through), and they are waited for: they finish a repetition, close the record and end with status 3.
ma_run() {
    local child status
    case $MA_LAUNCHER in
        srun) srun --kill-on-bad-exit=1 "${MA_SRUN_OPTIONS[@]}" "$@" & ;;
        mpirun) mpirun "${MA_MPIRUN_OPTIONS[@]}" -n "$SLURM_NTASKS" "$@" & ;;
        *)
            echo "MA_LAUNCHER: expected srun or mpirun, got $MA_LAUNCHER" >&2
            return 2
            ;;
    esac
    child=$!
    trap 'ma_warned=yes; kill -USR1 "$child" 2>/dev/null' USR1 # time is nearly up
    trap 'kill -USR1 "$child" 2>/dev/null' TERM                # cancelled, or SLURM itself will requeue the job
    while :; do
        wait "$child"
        status=$?
        kill -0 "$child" 2>/dev/null || break # it was the signal that ended the wait
    done
    trap - USR1 TERM
    return "$status"
}

# ma_bench FILE OPTIONS...: a launch recorded in FILE; if FILE is there already, what is missing in it.
ma_bench() {
    local file=$1 status
    shift
    mkdir -p "$(dirname "$file")"
    if [ -f "$file" ]; then
        set -- --resume "$file"
    else
        set -- --out "$file" "$@"
    fi
    echo "$(date +%FT%T) on ${SLURM_JOB_NODELIST:-this host}: bench $*"
    ma_run python -m mpi_allreduce bench "$@"
    status=$?
    [ "$status" != 3 ] || ma_again
    return "$status"
}

# ma_again: the run was stopped early; if that was for the time limit and the site wants it, requeue the job; and end.
ma_again() {
    if [ "$MA_REQUEUE" = yes ] && [ "${ma_warned:-no}" = yes ]; then
        echo "stopped before the end; requeueing job $SLURM_JOB_ID, which will go on where it was"
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "stopped before the end; submit the same command again with MA_NAME=$MA_NAME to go on"
    fi
    exit 3
}

# The name of the records: the same when a job is requeued, or submitted with the same MA_NAME.
MA_NAME=${MA_NAME:-${SLURM_JOB_NAME%.sbatch}-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}
site_environment
