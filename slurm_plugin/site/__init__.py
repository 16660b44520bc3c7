"""The site file: the admin's agreement in YAML, read and checked."""

from slurm_plugin.site.load import SiteFile, find_site_path, load_site, parse_site, site_from_settings

__all__ = ["SiteFile", "find_site_path", "load_site", "parse_site", "site_from_settings"]
