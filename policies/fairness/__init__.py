"""Fair shares: exact dominant shares, progressive filling, share tags and the SLA weight."""
