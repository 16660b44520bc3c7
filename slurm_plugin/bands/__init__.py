"""Quotas in slurmdbd: what the site file wants, what is there, the exact difference, and how to make or undo it."""
