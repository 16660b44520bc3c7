"""Loop harness: the core against a model of Slurm's scheduler and preemption, over many random states and cycles."""
