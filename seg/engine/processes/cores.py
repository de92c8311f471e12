"""How many threads a process may use, so that N processes on one machine don't get in each other's way."""

import os
from pathlib import Path


def threads_per_process(cores: int, processes: int) -> int:
    return max(1, cores // processes)


def usable_cores(cgroup: Path = Path('/sys/fs/cgroup')) -> int:
    """Cores that this process may run on: its affinity, and what a container's limit on CPU time comes to."""
    affine = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
    return max(1, int(min(affine, _cgroup_cores(cgroup))))


def _cgroup_cores(cgroup: Path) -> float:
    """Quota by period, of version 2 ('cpu.max': '150000 100000') or 1; infinite where there is no limit."""
    try:
        version_2 = cgroup / 'cpu.max'
        if version_2.exists():
            quota, period = version_2.read_text().split()
        else:
            quota = (cgroup / 'cpu' / 'cpu.cfs_quota_us').read_text()
            period = (cgroup / 'cpu' / 'cpu.cfs_period_us').read_text()
        return float(quota) / float(period) if float(quota) > 0 else float('inf')
    except (OSError, ValueError, ZeroDivisionError):  # none set ('max'), or no cgroups
        return float('inf')
