#!/usr/bin/env bash
# Train on several processes of this machine: tools/dist_train.sh CONFIG GPUS [flags of tools/train.py]
# On several machines, once on each: NNODES=2 NODE_RANK=0 MASTER_ADDR=first-machine PORT=29500 tools/dist_train.sh ...
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python}" -m seg.engine.processes.launcher train "$@"
