"""Docker, as far as mini-slurm needs it: a daemon, a base image, our image. Commands that Engine 20.10 has."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from mini_slurm import place
from mini_slurm.place import MiniError
from mini_slurm.processes import wait_until
from mini_slurm.releases import DEBIAN

IMAGE: Final = "fairgpu-mini"
_BASE: Final = "fairgpu-base"
"""Base images made here, where no registry can be reached."""
_CONTEXT: Final = (
    *("airflow_dags", "packaging", "policies", "requirements", "scripts", "slurm_plugin"),
    *("LICENSE", "README.md", "pyproject.toml"),
)
_HOST_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_HOW_TO_START: Final = """\
no Docker daemon answers. Start one, for example (as root, without systemd):
  dockerd >/var/log/dockerd.log 2>&1 &
or let this script do it: scripts/mini-slurm up --docker --start-daemon ...
It needs the packages docker.io and iptables. Where it cannot use overlay2, add --storage-driver vfs."""


def docker(*argv: str) -> str:
    """Run a docker command and return its output; raise `MiniError` with what it said when it fails."""
    try:
        done = subprocess.run(["docker", *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        msg = "there is no docker command; apt-get install --no-install-recommends docker.io iptables"
        raise MiniError(msg) from None
    if done.returncode:
        msg = f"docker {' '.join(argv[:2])} failed ({done.returncode}):\n" + _tail(done.stdout + done.stderr)
        raise MiniError(msg)
    return done.stdout.strip()


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-20:])


def _succeeds(*argv: str) -> bool:
    try:
        docker(*argv)
    except MiniError:
        return False
    return True


def need_daemon(*, start: bool) -> None:
    """Raise `MiniError` that says how to start one unless a daemon answers; start one when asked to."""
    docker("--version")
    if _succeeds("info"):
        return
    if not start or shutil.which("dockerd") is None:
        raise MiniError(_HOW_TO_START)
    place.base_dir().mkdir(mode=0o755, parents=True, exist_ok=True)
    path = place.base_dir() / "dockerd.log"
    with path.open("ab") as log:
        subprocess.Popen(["dockerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    sys.stderr.write(f"mini-slurm: started dockerd, which goes on running; its log is {path}\n")
    wait_until(lambda: _succeeds("info"), 60, "dockerd answers")


def build(release: str) -> str:
    """Build the image of a Slurm release and return its name; quick when nothing has changed."""
    name = f"{IMAGE}:{release}"
    debian = DEBIAN[release]
    base = _base_image(debian)
    with tempfile.TemporaryDirectory(prefix="fairgpu-image-") as folder:
        _stage(Path(folder))
        # The host's network: inside a build a bridge may have no way out.
        argv = ["build", "--network=host", f"--tag={name}", f"--build-arg=BASE={base}"]
        docker(*argv, f"--file={folder}/packaging/docker/Dockerfile", folder)
    return name


def _stage(folder: Path) -> None:
    """Copy what the image is made of, and the host's certificates for pip behind a proxy with one of its own."""
    for name in _CONTEXT:
        source, target = place.REPO / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    if _HOST_CERTIFICATES.exists():
        shutil.copy(_HOST_CERTIFICATES, folder / "build-certificates.crt")


def _base_image(debian: str) -> str:
    """Return a Debian image: one that is here, one that can be pulled, or one made with debootstrap."""
    made, public = f"{_BASE}:{debian}", f"debian:{debian}-slim"
    for name in (made, public):
        if _succeeds("image", "inspect", name):
            return name
    sys.stderr.write(f"mini-slurm: pulling {public}\n")
    if _succeeds("pull", public):
        return public
    _bootstrap(debian, made)
    return made


def _bootstrap(debian: str, name: str) -> None:
    if shutil.which("debootstrap") is None:
        msg = f"cannot pull debian:{debian}-slim, and to make it: apt-get install debootstrap"
        raise MiniError(msg)
    sys.stderr.write(f"mini-slurm: it cannot be pulled; making {name} with debootstrap\n")
    with tempfile.TemporaryDirectory(prefix="fairgpu-base-") as folder:
        root = f"{folder}/root"
        argv = ["debootstrap", "--variant=minbase", debian, root]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            msg = f"debootstrap {debian} failed:\n{_tail(done.stdout + done.stderr)}"
            raise MiniError(msg)
        archive = f"{folder}/root.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        docker("import", archive, name)
