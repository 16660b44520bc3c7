"""Reclaims on a real Slurm: whom the core expects to lose a job, and who does."""
