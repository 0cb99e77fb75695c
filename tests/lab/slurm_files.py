"""What Slurm reads: a controller on the first host, a daemon on each, GPUs that are device files."""

from __future__ import annotations

import os

from .plan import SLURM_HEAD, Plan

# No accounting and no cgroups: neither a database nor the machine's cgroup version matters. Schedules at once.
SLURM_CONF = """\
ClusterName=lab
SlurmctldHost={head}({head_address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
ReturnToService=2
SwitchType=switch/none
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmdParameters=config_overrides
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
KillWait=2
MinJobAge=300
MessageTimeout=10
PropagateResourceLimits=NONE
GresTypes=gpu
{nodes}
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
"""

NODE = "NodeName={name} NodeAddr={address} CPUs=4 RealMemory=2000 Gres=gpu:{num_gpus} State=UNKNOWN"


def write_slurm_files(plan: Plan) -> None:
    """Fill `slurm/` in the lab's folder; it becomes /etc/slurm of each host."""
    folder = plan.folder / "slurm"
    folder.mkdir()
    nodes = [NODE.format(name=name, address=address, num_gpus=plan.num_gpus) for name, address in plan.hosts.items()]
    (folder / "slurm.conf").write_text(
        SLURM_CONF.format(head=SLURM_HEAD, head_address=plan.hosts[SLURM_HEAD], nodes="\n".join(nodes)), "utf-8"
    )
    devices = [f"Name=gpu File=/dev/dri/renderD{128 + gpu}" for gpu in range(plan.num_gpus)]
    (folder / "gres.conf").write_text("\n".join(["AutoDetect=off", *devices, ""]), "utf-8")
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
