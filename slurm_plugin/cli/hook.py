"""``fairgpu hook build``: compile the submit plugin for the Slurm of this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli._fresh import make_client
from slurm_plugin.cli._options import json_option, site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import echo_json, print_line, talk
from slurm_plugin.doctor.host import DEFAULT_USER, look_at, uid_of
from slurm_plugin.errors import SlurmError
from slurm_plugin.hook.plugin_build import NEWEST_RELEASE, BuildError, build_plugin, find_toolchain
from slurm_plugin.hook.plugin_file import release_of, render_settings
from slurm_plugin.hook.shim_settings import trusted_uids
from slurm_plugin.site.load import load_site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_plugin.site import SiteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPlugin:
    """What was built and what is left to do.

    Attributes
    ----------
    running : str or None
        Version of the Slurm that answered; ``None`` if none was asked.
    slurm_conf : tuple of str
        Lines of slurm.conf that are missing; each replaces the line of its key.
    """

    plugin: Path
    built_for: str
    running: str | None
    slurm_conf: tuple[str, ...]


@click.group("hook")
def hook_command() -> None:
    """The submit hook inside slurmctld ('fairgpu hook-server' is its other end).

    \b
    Examples:
      sudo fairgpu hook build
      fairgpu hook build --help
    """


@hook_command.command("build")
@site_option
@json_option
@slurm_bin_dir_option
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the plugin goes; default: the last directory of Slurm's PluginDir.",
)
@click.option(
    "--slurm-include",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Directory that holds slurm/slurm.h; default: the compiler's search path.",
)
@click.option("--offline", is_flag=True, help="Do not ask Slurm; needs --into. For building a package.")
def build_command(
    *,
    site_path: Path | None,
    as_json: bool,
    slurm_bin_dir: Path | None,
    into: Path | None,
    slurm_include: Path | None,
    offline: bool,
) -> None:
    """Compile the job_submit plugin against Slurm's public headers and install it.

    Needs a C compiler ($CC, else cc) and the headers of the release that runs (Debian: gcc, libslurm-dev). It
    goes on working under every micro release of that release; under another one it does nothing and says so in
    slurmctld's log. slurm.conf is never changed: the lines that are missing are printed. slurmctld must be
    restarted to load a new plugin; changed settings (they come from the site file) count at once.

    \b
    Examples:
      sudo fairgpu hook build
      sudo fairgpu hook build --into /usr/local/lib/slurm
      fairgpu hook build --offline --into pkg/usr/lib/slurm --slurm-include /opt/slurm/include

    Exit codes: 0 built, 1 not built, 2 the site file is wrong, 3 Slurm unreachable.
    """
    if offline and into is None:
        raise click.UsageError("--offline needs --into DIR: nobody is asked for PluginDir")
    site = load_site(site_path)
    config = {} if offline else make_client(slurm_bin_dir).fetch_config()
    built = _build(site, config, into, slurm_include)
    if as_json:
        echo_json(built)
    else:
        _print(built)


def _build(site: SiteFile, config: Mapping[str, str], into: Path | None, include: Path | None) -> BuiltPlugin:
    toolchain = find_toolchain(include, compiler=os.environ.get("CC") or "cc")
    running = config.get("SLURM_VERSION")
    if running and release_of(running) != release_of(toolchain.version):
        raise BuildError(
            f"the headers are of Slurm {toolchain.version}, and {running} runs: the plugin would disable itself. "
            "Install the headers of the running release, or name them with --slurm-include DIR"
        )
    if release_of(toolchain.version) > NEWEST_RELEASE:
        talk(f"not tried on Slurm {toolchain.version} yet; the newest release that was is {NEWEST_RELEASE}")
    folders = [folder for folder in config.get("PluginDir", "").split(":") if folder]
    if into is None and not folders:
        raise SlurmError("Slurm names no PluginDir; say where the plugin goes with --into DIR")
    folder = (into or Path(folders[-1])).absolute()
    service_uid = uid_of(look_at(site.paths.state_dir, "").owner or DEFAULT_USER)
    settings = render_settings(site.hook, trusted_uids(config, service_uid))
    plugin = build_plugin(toolchain, folder, settings)
    lines = _missing_lines(config, folder) if config else ()
    return BuiltPlugin(plugin=plugin, built_for=toolchain.version, running=running, slurm_conf=lines)


def _missing_lines(config: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    lines = []
    if os.fspath(folder) not in config.get("PluginDir", "").split(":"):
        lines.append(f"PluginDir={config.get('PluginDir', '')}:{folder}")
    value = config.get("JobSubmitPlugins", "")
    plugins = [] if value in {"", "(null)"} else value.split(",")
    if "fairgpu" not in plugins:
        lines.append(f"JobSubmitPlugins={','.join((*plugins, 'fairgpu'))}")
    return tuple(lines)


def _print(built: BuiltPlugin) -> None:
    print_line(f"built {built.plugin} for Slurm {release_of(built.built_for)} (headers {built.built_for})")
    for line in built.slurm_conf:
        print_line(f"slurm.conf: {line}")
    if any(line.startswith("PluginDir=") for line in built.slurm_conf):
        talk("Each directory of PluginDir must exist on every host that reads this slurm.conf: Slurm stops without it.")
    talk("Then restart slurmctld, and 'fairgpu doctor' checks it.")
