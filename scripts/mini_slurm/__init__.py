"""mini-slurm: throw-away Slurm clusters for tests and the demo, one namespace each, standard library only."""
