"""Site factors as ``sprio`` shows them, the only command that does.

``sprio`` lists pending jobs that are eligible and not held: one line per job, partition and QOS, all with
the same SITE, and by the plain numeric id, split array tasks and het components included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_plugin import translate
from slurm_plugin.client.table import Column, Table

if TYPE_CHECKING:
    from collections import Counter

SITE_COLUMNS: Final = (Column(field="i", header="JOBID"), Column(field="S", header="SITE"))


def read_site_factors(table: Table, problems: Counter[str]) -> dict[str, int]:
    """SITE by plain numeric job id; unreadable lines are counted in ``problems``."""
    factors: dict[str, int] = {}
    for job_id, site in table.rows:
        try:
            factors[job_id.strip()] = translate.parse_count(site.strip()) or 0
        except ValueError:
            problems["sprio row not understood"] += 1
    if table.n_malformed:
        problems["sprio row with the wrong number of columns"] += table.n_malformed
    return factors
