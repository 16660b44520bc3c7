"""``fairgpu hook build``: what it makes, what it says is missing, what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from slurm_plugin.cli.hook import hook_command
from slurm_plugin.errors import SlurmUnavailable
from slurm_plugin.hook.plugin_build import SOURCES, BuildError, find_toolchain
from slurm_plugin.hook.plugin_file import (
    DEFAULTS,
    PLUGIN_NAME,
    SETTINGS_NAME,
    differing_settings,
    find_plugin,
    release_of,
    render_settings,
)
from slurm_plugin.hook.shim_settings import trusted_uids
from slurm_plugin.hook.wire import encode_frame
from slurm_plugin.site.load import parse_site
from tests.slurm_plugin.hook.hostile import REPLY, Hostile, replies
from tests.slurm_plugin.hook.shims import CompiledShim, Submit, build_host

if TYPE_CHECKING:
    from click.testing import Result

    from slurm_plugin.hook.plugin_build import Toolchain

SITE = "cluster: c\npartitions: [gpu]\nagents:\n  rec: {accounts: [rec], base_weight: 1.0}\n"
SCONTROL = "#!{python}\nprint({text!r})\n"


def build(folder: Path, *argv: str) -> Result:
    site = folder / "site.yaml"
    site.write_text(f"{SITE}paths: {{state_dir: {folder}, run_dir: {folder}}}\nhook: {{deadline: 30ms}}\n")
    return CliRunner().invoke(hook_command, ["build", "--site", str(site), *argv])


def fake_slurm(folder: Path, **config: str) -> str:
    """Return the option that names a directory whose ``scontrol show config`` says ``config``."""
    text = "".join(f"{key:<24}= {value}\n" for key, value in config.items())
    program = folder / "scontrol"
    program.write_text(SCONTROL.format(python=sys.executable, text=text))
    program.chmod(0o755)
    return f"--slurm-bin-dir={folder}"


def test_the_plugin_and_its_settings_are_made_for_everybody_to_read(toolchain: Toolchain, tmp_path: Path) -> None:
    done = build(tmp_path, "--offline", f"--into={tmp_path}/lib")
    assert done.exit_code == 0, done.output
    found = find_plugin(f"/nowhere:{tmp_path}/lib")
    assert found is not None
    assert found.built_for == toolchain.version
    assert sorted(path.name for path in (tmp_path / "lib").iterdir()) == [SETTINGS_NAME, PLUGIN_NAME]
    assert stat.S_IMODE(found.path.stat().st_mode) == 0o755
    assert stat.S_IMODE(found.path.with_name(SETTINGS_NAME).stat().st_mode) == 0o644
    assert "deadline_ms = 30\n" in (found.settings or "")


def test_what_is_built_works_with_the_settings_that_were_written(toolchain: Toolchain, tmp_path: Path) -> None:
    folder = tmp_path / "host"
    folder.mkdir()
    host = build_host(toolchain, folder)
    build(tmp_path, "--offline", f"--into={folder}")
    with Hostile(tmp_path / "s", replies(encode_frame("R", REPLY))):
        (call,) = CompiledShim(host, tmp_path / "plugin").run(tmp_path / "s", Submit(), options={"deadline_ms": 150})
    assert call.changed == f"site_factor={REPLY['site_factor']}"


def test_only_what_is_meant_is_exported(toolchain: Toolchain, tmp_path: Path) -> None:
    assert toolchain.version
    build(tmp_path, "--offline", f"--into={tmp_path}")
    argv = ["nm", "-D", "--defined-only", os.fspath(tmp_path / PLUGIN_NAME)]
    names = {line.split()[-1] for line in subprocess.check_output(argv, text=True).splitlines()}
    assert names == {
        *("plugin_name", "plugin_type", "plugin_version", "fairgpu_built_for"),
        *("init", "job_submit", "job_modify"),
    }


def test_the_missing_lines_keep_what_there_is(toolchain: Toolchain, tmp_path: Path) -> None:
    slurm = {"SLURM_VERSION": toolchain.version, "PluginDir": "/usr/lib/slurm", "JobSubmitPlugins": "lua"}
    done = build(tmp_path, fake_slurm(tmp_path, **slurm, SlurmUser="slurm(64030)"), f"--into={tmp_path}/lib", "--json")
    answer = json.loads(done.stdout)
    assert answer["slurm_conf"] == [f"PluginDir=/usr/lib/slurm:{tmp_path}/lib", "JobSubmitPlugins=lua,fairgpu"]
    assert "64030" in (tmp_path / "lib" / SETTINGS_NAME).read_text()


def test_by_default_it_goes_where_slurm_looks_last(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    plugin_dir = f"/usr/lib/slurm:{tmp_path}/own"
    slurm = {"SLURM_VERSION": toolchain.version, "PluginDir": plugin_dir, "JobSubmitPlugins": "(null)"}
    done = build(tmp_path, fake_slurm(tmp_path, **slurm))
    assert (tmp_path / "own" / PLUGIN_NAME).exists()
    assert "slurm.conf: JobSubmitPlugins=fairgpu\n" in done.stdout
    assert "PluginDir" not in done.stdout


def test_headers_of_another_release_than_the_running_one_are_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    assert toolchain.version
    option = fake_slurm(tmp_path, SLURM_VERSION="19.05.1", PluginDir=str(tmp_path))
    done = build(tmp_path, option)
    assert isinstance(done.exception, BuildError)
    assert "would disable itself" in str(done.exception)
    assert not (tmp_path / PLUGIN_NAME).exists()


def test_a_slurm_that_does_not_answer_is_told_apart_from_a_failed_build(tmp_path: Path) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    assert isinstance(build(tmp_path, f"--slurm-bin-dir={tmp_path}").exception, SlurmUnavailable)


def test_offline_needs_a_place(tmp_path: Path) -> None:
    done = build(tmp_path, "--offline")
    assert done.exit_code == 2
    assert "--into" in done.stderr


def test_a_folder_that_cannot_be_written_is_named(toolchain: Toolchain, tmp_path: Path) -> None:
    assert toolchain.version
    (tmp_path / "file").write_text("")
    done = build(tmp_path, "--offline", f"--into={tmp_path}/file/lib")
    assert isinstance(done.exception, BuildError)
    assert str(tmp_path / "file/lib") in str(done.exception)


def test_a_failed_compilation_leaves_the_former_plugin(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / PLUGIN_NAME).write_text("former")
    broken = tmp_path / "cc"
    broken.write_text(
        f'#!/bin/sh\ncase "$*" in *-E*) exec {toolchain.compiler} "$@";; esac\necho no room >&2; exit 1\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CC", os.fspath(broken))
    done = build(tmp_path, "--offline", f"--into={tmp_path}")
    assert "does not compile:\nno room" in str(done.exception)
    assert (tmp_path / PLUGIN_NAME).read_text() == "former"


def test_a_missing_compiler_names_its_package() -> None:
    with pytest.raises(BuildError, match="no C compiler 'no-such-cc': apt-get install gcc libc6-dev"):
        find_toolchain(None, compiler="no-such-cc")


FAILURES = {
    "no Slurm": ("x.c:1:10: fatal error: slurm/slurm.h: No such file or directory", "apt-get install libslurm-dev"),
    "no Slurm, clang": ("x.c:1:10: fatal error: 'slurm/slurm.h' file not found", "apt-get install libslurm-dev"),
    "no C library": ("x.c:1:10: fatal error: pthread.h: No such file or directory", "apt-get install libc6-dev"),
    "something else": ("cc1: out of memory", "the compiler does not work:\ncc1: out of memory"),
}


@pytest.mark.parametrize(("stderr", "message"), FAILURES.values(), ids=FAILURES.keys())
def test_missing_headers_name_their_package(tmp_path: Path, stderr: str, message: str) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\necho "{stderr}" >&2\nexit 1\n')
    compiler.chmod(0o755)
    with pytest.raises(BuildError, match=re.escape(message)):
        find_toolchain(None, compiler=os.fspath(compiler))


def test_the_headers_of_a_directory_are_those_that_count(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    for name in ("slurm", "slurm_errno", "slurmdb", "spank"):
        (tmp_path / f"slurm/{name}.h").write_text("")
    (tmp_path / "slurm/slurm_version.h").write_text("#define SLURM_VERSION_NUMBER 0x190b07\n")
    assert find_toolchain(tmp_path, compiler=toolchain.compiler).version == "25.11.7"


def test_headers_without_a_version_are_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    for name in ("slurm", "slurm_errno", "slurmdb", "spank", "slurm_version"):
        (tmp_path / f"slurm/{name}.h").write_text("")
    with pytest.raises(BuildError, match="names no version"):
        find_toolchain(tmp_path, compiler=toolchain.compiler)


def test_a_release_newer_than_those_tried_is_built_with_a_word(toolchain: Toolchain, tmp_path: Path) -> None:
    # The compiler is not run on these headers: what they announce is all that is looked at before.
    (tmp_path / "slurm").mkdir()
    for name in ("slurm", "slurm_errno", "slurmdb", "spank"):
        (tmp_path / f"slurm/{name}.h").write_text("")
    (tmp_path / "slurm/slurm_version.h").write_text("#define SLURM_VERSION_NUMBER 0x1b0500\n")
    assert toolchain.version
    done = build(tmp_path, "--offline", f"--into={tmp_path}/lib", f"--slurm-include={tmp_path}")
    assert "not tried on Slurm 27.05.0 yet" in done.stderr
    assert isinstance(done.exception, BuildError)


def test_settings_say_what_the_site_file_says() -> None:
    hook = parse_site(
        f"{SITE}hook: {{socket: /x/h.sock, deadline: 7ms, breaker_failures: 5, breaker_pause: 2s}}\n"
    ).hook
    text = render_settings(hook, (64030, 990))
    assert differing_settings(text, hook) == ()
    assert "uids = 64030, 990\n" in text
    assert differing_settings(None, hook) == (
        "socket /run/fairgpu/hook.sock, not /x/h.sock",
        "deadline_ms 20, not 7",
        "failures 3, not 5",
        "pause_s 10, not 2",
    )


def test_the_defaults_are_those_of_the_plugin() -> None:
    source = (SOURCES / "settings.c").read_text()
    block = source.partition("DEFAULTS = {")[2].partition("};")[0]
    found = dict(re.findall(r"\.(\w+) = \"?([^\",]+)", block))
    assert found == {
        "socket": DEFAULTS["socket"],
        "deadline_us": f"{DEFAULTS['deadline_ms']}000",
        "failures": DEFAULTS["failures"],
        "pause_us": f"{DEFAULTS['pause_s']}000000",
    }


def test_slurm_user_and_the_service_user_are_trusted() -> None:
    assert trusted_uids({"SlurmUser": "slurm(64030)"}, 990) == (990, 64030)
    assert trusted_uids({"SlurmUser": "root(0)"}, None) == ()
    assert trusted_uids({}, 990) == (990,)


@pytest.mark.parametrize(
    ("version", "release"), [("22.05.8-4+deb12u3", "22.05"), ("26.5", "26.05"), ("", ""), ("x", "")]
)
def test_releases(version: str, release: str) -> None:
    assert release_of(version) == release


def test_a_plugin_that_says_nothing_of_itself_and_one_that_cannot_be_found(tmp_path: Path) -> None:
    (tmp_path / PLUGIN_NAME).write_bytes(b"\x7fELF")
    found = find_plugin(str(tmp_path))
    assert found is not None
    assert (found.built_for, found.settings) == ("", None)
    assert find_plugin("") is None
    assert find_plugin(f"{tmp_path}/none:{Path('/nowhere')}") is None


def test_no_source_looks_inside_slurms_private_structures() -> None:
    includes = {
        line for path in SOURCES.glob("*.[ch]") for line in re.findall(r"#include <(slurm[^>]*)>", path.read_text())
    }
    assert includes == {
        *("slurm/slurm.h", "slurm/slurm_errno.h", "slurm/slurm_version.h", "slurm/slurmdb.h", "slurm/spank.h"),
    }
