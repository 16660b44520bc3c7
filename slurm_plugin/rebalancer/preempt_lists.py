"""What ``apply`` wrote comes back whenever nobody steers: full Preempt lists, and the borrow QOSes' one rank.

A list that is frozen half-way would block rightful claims; a frozen rank would make an agent's loans go first for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.quota.layout import HIGHEST_BORROW_PRIORITY, full_preempt_list
from policies.quota.names import Band
from policies.quota.nominal import compute_nominals
from slurm_plugin.client.qos import NO_LISTS
from slurm_plugin.qos_helper.client import HelperUnavailableError
from slurm_plugin.qos_helper.request import Setting, Verdict, group_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.records import QosRecord
    from policies.site_policy import SitePolicy
    from slurm_plugin.client import SlurmClient
    from slurm_plugin.qos_helper.client import QosHelper


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReport:
    """What became of the Preempt lists and borrow ranks.

    Attributes
    ----------
    restored : tuple of str
        QOSes whose list was written.
    ranks : tuple of str
        Borrow QOSes whose priority was written.
    failed : tuple of (str, str)
        QOSes whose list or rank still is not as ``apply`` wrote it, with the reason.
    """

    restored: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


def full_lists(policy: SitePolicy, present: Sequence[QosRecord]) -> dict[str, tuple[str, ...]]:
    """Return the full list of each borrow and guaranteed QOS that exists, with the QOSes that exist.

    Borrow comes first: should slurmdbd have a wrong list of one in memory, it would refuse those that name it.
    """
    names = {record.name for record in present}
    quotas = compute_nominals(policy, ())  # the names do not depend on the nodes
    lists: dict[str, tuple[str, ...]] = {}
    own = [(quota.agent, quota.borrow_qos, Band.BORROW) for quota in quotas]
    own += [(quota.agent, quota.guaranteed_qos, Band.GUARANTEED) for quota in quotas]
    for agent, qos, band in own:
        if qos is not None and qos in names:
            full = full_preempt_list(quotas, agent, band)
            lists[qos] = tuple(name for name in full if name in names)
    return lists


def restore_lists(policy: SitePolicy, client: SlurmClient, helper: QosHelper) -> ListReport:
    """Write full Preempt lists and the ranks of ``apply`` where they are others; doing it again changes nothing.

    Raises
    ------
    SlurmError
        The present lists and ranks could not be read from slurmctld.
    """
    if policy.bands is None:
        return ListReport()
    present, problems = client.fetch_qos()
    # While slurmdbd is away the lists shown are as old as its last answer: what we wrote since is not in them.
    is_unknown = any(problem.startswith(NO_LISTS) for problem, _ in problems)
    now = {record.name: record for record in present}
    full = full_lists(policy, present)
    wanted = [
        (quota.borrow_qos, Setting.PRIORITY, str(HIGHEST_BORROW_PRIORITY))
        for quota in compute_nominals(policy, ())
        if quota.borrow_qos in now and (is_unknown or now[quota.borrow_qos].priority != HIGHEST_BORROW_PRIORITY)
    ]
    wanted += [
        (name, Setting.PREEMPT, ",".join(names))
        for name, names in full.items()
        if is_unknown or now[name].preempt != names
    ]
    if not wanted:
        return ListReport()
    try:
        outcomes = helper.apply(group_changes(wanted))
    except HelperUnavailableError as err:
        return ListReport(failed=tuple(sorted({name: str(err) for name, _, _ in wanted}.items())))
    failed = {name: one.text for one in outcomes if one.verdict is not Verdict.DONE for name in one.change.names}
    done = [one.change for one in outcomes if one.verdict is Verdict.DONE]
    return ListReport(
        restored=tuple(sorted(n for change in done if change.setting is Setting.PREEMPT for n in change.names)),
        ranks=tuple(sorted(n for change in done if change.setting is Setting.PRIORITY for n in change.names)),
        failed=tuple(sorted(failed.items())),
    )
