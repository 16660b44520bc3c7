"""The soak: a mini-Slurm with bands and mixed jobs, in which a random process is killed every few seconds."""
