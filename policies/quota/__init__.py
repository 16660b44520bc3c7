"""Quotas and the three bands: apportionment, overflow, ranks, Preempt lists, victims (DESIGN section 3)."""
