"""Whose job a submission is: tags in untrusted text, and the one decision that hook and rebalancer share."""
