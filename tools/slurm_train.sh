#!/usr/bin/env bash
# Train under Slurm: tools/slurm_train.sh PARTITION JOB CONFIG [flags of tools/train.py]
#
# In the environment: GPUS (all of the job's processes, 4), GPUS_PER_NODE (4), CPUS_PER_TASK (5), SRUN_ARGS (more
# options for Slurm), GRES (gpu:GPUS_PER_NODE; empty on a cluster without GPUs), SBATCH=1 (submit and return).
# A batch job is put back in the queue when it is preempted, and goes on from its newest checkpoint then.
set -euo pipefail

if [ "$#" -lt 3 ]; then
    echo "usage: [GPUS=4] [GPUS_PER_NODE=4] [CPUS_PER_TASK=5] [SRUN_ARGS=...] [SBATCH=1]" \
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
    ${gres:+--gres="$gres"} ${more[@]+"${more[@]}"}
)
command=("${PYTHON:-python}" -u "$root/tools/train.py" "$@" --launcher slurm)

if [ "${SBATCH:-0}" != 1 ]; then
    exec srun "${options[@]}" --kill-on-bad-exit=1 "${command[@]}"
fi
# put back in the queue, the same command must go on from where it was
case " $* " in *" --resume"*) ;; *) command+=(--resume) ;; esac
printf -v line '%q ' srun --cpus-per-task="${CPUS_PER_TASK:-5}" --kill-on-bad-exit=1 "${command[@]}"
exec sbatch "${options[@]}" --requeue --open-mode=append --output="$job-%j.log" --wrap="$line"
