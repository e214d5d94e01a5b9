#!/usr/bin/env bash
# A sweep as a Slurm job array: each element takes its part of the work and writes its own run files into one folder.
#
#   sbatch --array=1-22 benches/sweeps/slurm.sh benches/sweeps/22-models.bench runs/22-models 22
#   alara report runs/22-models --html runs/22-models/report
#
# Elements that were killed or requeued go on where they were: submit the same line again, or some of its elements, as --array=3,7. Model files must be on every node or on a
# shared disk (HF_HOME), and nodes of one kind (--constraint): a run does not go on on another machine.
#SBATCH --job-name=alara-bench
#SBATCH --cpus-per-task=16
#SBATCH --mem=48G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --output=%x-%A-%a.log
set -euo pipefail
sweep=${1:?the .bench file}
out=${2:?the folder for the run files, on a disk that all nodes share}
shards=${3:?how many parts, as many as the array has elements, from 1}

exec srun --cpus-per-task="$SLURM_CPUS_PER_TASK" alara bench tasks "$sweep" --resume "$out" \
    --shard "$SLURM_ARRAY_TASK_ID/$shards" \
    --threads "$SLURM_CPUS_PER_TASK" --parallel 4
