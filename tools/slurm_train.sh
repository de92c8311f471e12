#!/usr/bin/env bash
# Train under Slurm: tools/slurm_train.sh PARTITION JOB CONFIG [flags of tools/train.py]
#
# In the environment: GPUS (all of the job's processes, 4), GPUS_PER_NODE (4), CPUS_PER_TASK (5), SRUN_ARGS (more
# options for Slurm, such as --time=8:00:00), GRES (gpu:GPUS_PER_NODE; empty on a cluster without GPUs), WARN (seconds
# before the time limit at which the run stops, with a checkpoint: 120), SBATCH=1 (submit and return), REQUEUE=1 (a
# batch job whose time is up goes back in the queue).
# A batch job that is preempted is put back by Slurm. Whenever it comes back it goes on from its newest checkpoint.
set -euo pipefail

if [ "$#" -lt 3 ]; then
    echo "usage: [GPUS=4] [GPUS_PER_NODE=4] [CPUS_PER_TASK=5] [GRES=gpu:4] [SRUN_ARGS=...] [WARN=120] [SBATCH=1 [REQUEUE=1]]" \
        "tools/slurm_train.sh PARTITION JOB CONFIG [flags]" >&2
    exit 2
fi

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
partition="$1" job="$2"
shift 2

gpus="${GPUS:-4}"
gpus_per_node="${GPUS_PER_NODE:-4}"
if [ "$gpus_per_node" -gt "$gpus" ]; then gpus_per_node="$gpus"; fi
gres="${GRES-gpu:$gpus_per_node}"
read -ra more <<<"${SRUN_ARGS:-}"

options=(
    --partition="$partition" --job-name="$job"
    --ntasks="$gpus" --ntasks-per-node="$gpus_per_node" --cpus-per-task="${CPUS_PER_TASK:-5}"
    --signal="USR1@${WARN:-120}" ${gres:+--gres="$gres"} ${more[@]+"${more[@]}"}
)
command=("${PYTHON:-python}" -u "$root/tools/train.py" "$@" --launcher slurm)

if [ "${SBATCH:-0}" != 1 ]; then
    exec srun "${options[@]}" --disable-status --kill-on-bad-exit=1 "${command[@]}"
fi
# put back in the queue, the same command must go on from where it was
case " $* " in *" --resume"*) ;; *) command+=(--resume) ;; esac
# Slurm ends a job by SIGTERM to the ranks, which they use to write a checkpoint, and to the batch shell with the processes of
# its group. The shell must live on, and srun must not hear of it: it would kill the ranks at once.
printf -v step '%q ' setsid --wait srun --cpus-per-task="${CPUS_PER_TASK:-5}" --kill-on-bad-exit=1 "${command[@]}"
line="trap 'ended=1' TERM; $step; code=\$?"
# 138 is 128 + SIGUSR1: the run was warned, has written its checkpoint, and nobody has ended the job
again='if [ "$code${ended:-}" = 138 ]; then echo "time is up: job $SLURM_JOB_ID goes back in the queue"; scontrol requeue "$SLURM_JOB_ID"; fi'
if [ "${REQUEUE:-0}" = 1 ]; then line+="; $again"; fi
exec sbatch "${options[@]}" --requeue --open-mode=append --output="$job-%j.log" --wrap="$line; exit \$code"
