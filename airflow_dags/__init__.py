"""FairGPU's Airflow side. Empty for now: the provider and the nightly DAGs arrive with their own issue."""
