"""The core of FairGPU: pure functions from a cluster's state to a plan.

Nothing here knows Slurm's commands, Airflow, files, the network or the clock. The same input gives the same plan,
byte for byte, so that a cycle can be dumped, replayed and explained (``docs/adr/0001-house.md``).
"""
