"""FairGPU's Slurm side: reads Slurm, answers the submit hook, enacts plans, keeps history, is the command line."""
