"""The submit hook: a Lua shim inside slurmctld and the Python server that it asks (docs/adr/0005)."""
