#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --no-kill
#SBATCH --no-requeue
#SBATCH --output=/home/alice/.launchpad-slurm/RUN/job.log

# What the nodes need to join the launcher: from a file, so that no list of processes shows it.
exec 3< /home/alice/.launchpad-slurm/RUN/join && rm /home/alice/.launchpad-slurm/RUN/join || exit 1
exec srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 --unbuffered --cpu-bind=none /opt/python/bin/python -c 'import json,sys;h=json.loads(sys.stdin.readline());sys.path[:]=h["path"];from launchpad.launch.backends.slurm import node_process;node_process.main(h)' <&3 3<&-
