#!/usr/bin/env bash
# Score a checkpoint on several processes: tools/dist_test.sh CONFIG CHECKPOINT GPUS [flags of tools/test.py]
# On several machines, once on each: NNODES=2 NODE_RANK=0 MASTER_ADDR=first-machine PORT=29500 tools/dist_test.sh ...
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python}" -m seg.engine.processes.launcher test "$@"
