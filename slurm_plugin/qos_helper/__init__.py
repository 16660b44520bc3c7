"""The one process with rights in slurmdbd: changes ranks, Preempt lists and limits of our own QOSes, nothing else."""
