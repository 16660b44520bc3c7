"""The site file while a process runs: read again when it changes, and the former one stays if the new one is broken."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from slurm_plugin.errors import ConfigError
from slurm_plugin.site.load import load_site

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_plugin.site.load import SiteFile

Signature = tuple[int, int, int] | None

_log = logging.getLogger(__name__)


def file_signature(path: Path) -> Signature:
    """What changes with a file's content; ``None`` if it cannot be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


class SiteWatcher:
    """Keeps a site file fresh.

    Parameters
    ----------
    site : SiteFile
        As loaded; a changed one with problems is logged once and the former one stays.

    Attributes
    ----------
    site : SiteFile
        The last good one.
    """

    def __init__(self, site: SiteFile) -> None:
        self.site = site
        self._signature = file_signature(site.path)

    def look(self) -> bool:
        """Read the file if it changed; whether :attr:`site` is a new one."""
        signature = file_signature(self.site.path)
        if signature is None or signature == self._signature:
            return False
        self._signature = signature
        try:
            self.site = load_site(self.site.path)
        except (ConfigError, OSError) as err:
            problems = err.problems if isinstance(err, ConfigError) else ()
            _log.error("event=site_file_refused error=%s problems=%s", err, "; ".join(problems))
            return False
        return True
