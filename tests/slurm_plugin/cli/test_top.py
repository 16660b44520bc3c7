"""``fairgpu top``: the page, the pages one after the other, and the screen with its keys."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from rich.console import Console

from policies.plan import Finding
from policies.records import JobId
from slurm_plugin.cli import top
from slurm_plugin.cli._band_table import BandUse
from slurm_plugin.cli._top_feed import MAX_WAIT_S, Feed, Picture, look_once
from slurm_plugin.cli._top_view import bar, render
from slurm_plugin.cli._watch import Seen, Watch
from slurm_plugin.errors import SlurmUnavailable
from tests.slurm_plugin.cli.recorded import busy_slurm, make_snapshot, run
from tests.slurm_plugin.rebalancer.band_world import REC
from tests.slurm_plugin.rebalancer.test_bands import busy, gpus
from tests.slurm_plugin.rebalancer.world import START_S, make_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurm_plugin.client import FakeSlurm, SlurmClient
    from slurm_plugin.site import SiteFile

AWAY = SlurmUnavailable("Unable to contact slurm controller\nsecond line")


@pytest.fixture
def site(tmp_path: Path) -> SiteFile:
    return make_site(tmp_path)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """The cluster that the command line sees; nothing waits."""
    slurm = busy_slurm()
    monkeypatch.setattr(top, "make_client", lambda _: slurm)
    monkeypatch.setattr(top, "_pause", lambda _: None)
    return slurm


def draw(picture: Picture, *, now_s: float = START_S, width: int = 80, is_colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=is_colour, color_system="standard" if is_colour else None, highlight=False
    )
    console.print(render(picture, now_s=now_s, width=width))
    return out.getvalue()


def picture_of(path: Path) -> Picture:
    return Picture(interval_s=2.0).with_look(Seen(snapshot=make_snapshot(path)), now_s=START_S)


def test_a_page_has_a_row_per_agent_and_says_how_old_it_is(tmp_path: Path) -> None:
    text = draw(picture_of(tmp_path), now_s=START_S + 3)
    assert "data 3.0s old, every 2 s" in text
    rows = [line.split() for line in text.splitlines()]
    # weight, quota, 2 of 16 GPUs in use as the whole bar, share 2/16, 2 pending
    (risk,) = [row for row in rows if row[:1] == ["risk"]]
    assert [cell for cell in risk if set(cell) != {"="}] == [
        *("risk", "0.6000", "-", "2", "-", "-", "-", "0.1250", "2", "no", "target")
    ]


def test_bands_are_drawn_and_fit_80_columns(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    for number in range(3, 10):
        world.slurm.start_job(JobId(str(number)), nodes="node03")
    seen = Watch(site=world.site, client=world.slurm).look()
    text = draw(Picture(interval_s=2.0).with_look(seen, now_s=START_S))
    (rec,) = [line.split() for line in text.splitlines() if line.startswith("rec ")]
    # quota 6, 13 in use: 6 in the quota, 1 borrowed, 6 opportunistic
    assert (rec[2:4], rec[5:7]) == (["6", "13"], ["1", "6"])
    assert re.fullmatch(r"#+\++o+", rec[4])
    table = text[: text.index("bar:")]
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (80, "agent weight quota use gres/gpu borr. opp. lent share pend. SLA"),
        (70, "agent weight quota use gres/gpu borr. opp. lent share pend. SLA"),
        (62, "agent weight quota use borr. opp. lent share pend. SLA"),
        (54, "agent weight quota use borr. opp. lent share pend."),
        (44, "agent quota use borr. opp. lent pend."),
        (24, "agent quota use borr."),
    ],
)
def test_a_narrow_screen_loses_the_bar_then_columns_and_never_a_digit(tmp_path: Path, width: int, columns: str) -> None:
    world = busy(tmp_path)
    seen = Watch(site=world.site, client=world.slurm).look()
    text = draw(Picture(interval_s=2.0).with_look(seen, now_s=START_S), width=width)
    lines = text.splitlines()
    heading = next(line for line in lines if line.startswith("agent "))
    rows = [line for line in lines if line.startswith(("rec ", "risk "))]
    assert max(map(len, [heading, *rows])) <= width
    assert heading.split() == columns.split()
    wide = draw(Picture(interval_s=2.0).with_look(seen, now_s=START_S), width=100).splitlines()
    known = {cell for line in wide if line.startswith(("rec ", "risk ")) for cell in line.split()}
    shown = [cell for line in rows for cell in line.split() if not set(cell) <= set("#.+o=")]
    assert set(shown) <= known
    assert {"rec", "risk"} <= set(shown)


def test_the_last_cycle_ages_with_the_data(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    seen = Watch(site=world.site, client=world.slurm).look()
    text = draw(Picture(interval_s=2.0).with_look(seen, now_s=START_S), now_s=seen.snapshot.now_s + 120, width=100)
    assert "last cycle 2m00s ago" in text


def test_a_bar_is_the_quota_then_what_is_borrowed() -> None:
    use = BandUse(tres="gres/gpu", quota=8, guaranteed=6, borrowed=2, opportunistic=4, outside=2)
    assert bar(use, full=16, width=16).plain == "######..++oooo=="
    assert bar(replace(use, borrowed=0, opportunistic=0, outside=0), full=8, width=8).plain == "######.."
    assert bar(replace(use, quota=0, guaranteed=0), full=0, width=8).plain == ""


def test_a_little_is_not_drawn_as_nothing_and_nothing_overflows() -> None:
    use = BandUse(tres="cpu", quota=1000, guaranteed=1, borrowed=1, opportunistic=1, outside=1)
    drawn = bar(use, full=1003, width=8).plain
    assert drawn.startswith("#")
    assert len(drawn) <= 8


def test_while_slurm_is_away_the_last_data_stay_under_a_banner(tmp_path: Path) -> None:
    picture = picture_of(tmp_path).with_failure(AWAY, now_s=START_S + 2)
    text = draw(picture, now_s=START_S + 4)
    assert "SLURM DOES NOT ANSWER, for 2.0s: Unable to contact slurm controller. Next try in" in text
    assert "data 4.0s old" in text
    assert "second line" not in text
    assert "risk" in text


def test_a_slow_slurm_is_told_before_it_fails(tmp_path: Path) -> None:
    picture = picture_of(tmp_path)
    console = Console(file=io.StringIO(), width=80)
    for waiting_s, is_told in ((2.0, False), (5.0, True)):
        with console.capture() as captured:
            console.print(render(picture, now_s=START_S, width=80, waiting_s=waiting_s))
        assert ("SLURM IS SLOW, no answer for 5.0s so far." in captured.get()) is is_told
    with console.capture() as captured:
        console.print(render(picture.with_failure(AWAY, now_s=START_S), now_s=START_S, width=80, waiting_s=1.0))
    assert "Trying now." in captured.get()


def test_pauses_double_up_to_a_minute_and_end_with_the_first_answer(tmp_path: Path) -> None:
    picture, pauses = Picture(interval_s=2.0), []
    for _ in range(7):
        picture = picture.with_failure(AWAY, now_s=100.0)
        pauses.append(picture.next_s - 100.0)
    assert pauses == [4.0, 8.0, 16.0, 32.0, MAX_WAIT_S, MAX_WAIT_S, MAX_WAIT_S]
    assert picture.failed_since_s == 100.0
    again = picture.with_look(Seen(snapshot=make_snapshot(tmp_path)), now_s=200.0)
    assert (again.error, again.n_failed, again.next_s) == (None, 0, 202.0)


def test_a_long_interval_is_not_shortened_by_a_failure() -> None:
    assert Picture(interval_s=600.0).with_failure(AWAY, now_s=0.0).next_s == 600.0


def test_text_of_strangers_is_escaped_and_cut(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path)
    finding = Finding(kind="refused_tag", subject="user \x1b[31mx", text="y" * 500)
    many = (finding, *(replace(finding, subject=str(n)) for n in range(9)))
    seen = Seen(snapshot=replace(snapshot, plan=replace(snapshot.plan, findings=many)))
    text = draw(Picture(interval_s=2.0).with_look(seen, now_s=START_S))
    assert "\\x1b[31mx" in text
    assert "4 more, see fairgpu status" in text
    findings = [line for line in text.splitlines() if line.startswith("Finding")]
    assert max(map(len, findings)) <= 80


@pytest.mark.parametrize(("no_color", "has_colour"), [(None, True), ("1", False)])
def test_no_color_is_honoured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_color: str | None, *, has_colour: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    text = draw(picture_of(tmp_path), is_colour=True)
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-7]", text)) is has_colour


def test_once_prints_one_page_without_escapes(live: FakeSlurm, site: SiteFile) -> None:
    done = run("top", "--once", "--site", site.path)
    assert done.exit_code == 0
    assert done.stdout.count("fairgpu top  fake: mode enforce, policy wdrf, on") == 1
    assert "RPC budget: no cycle has told its updates yet" in done.stdout
    assert "\x1b" not in done.stdout
    assert live.is_acting


def test_count_prints_so_many_json_lines_and_goes_on_while_slurm_is_away(live: FakeSlurm, site: SiteFile) -> None:
    live.be_unavailable(1)
    done = run("top", "--json", "--count", "3", "--site", site.path)
    bodies = [json.loads(line) for line in done.stdout.splitlines()]
    assert [body.get("cluster") for body in bodies] == [None, "fake", "fake"]
    assert bodies[0]["error"].startswith("Unable to contact")
    assert bodies[1]["sla_state"] == {"rec": "no target", "risk": "no target"}
    assert done.exit_code == 0


def test_slurm_that_never_answers_is_the_callers_error(live: FakeSlurm, site: SiteFile) -> None:
    live.be_unavailable(9)
    done = run("top", "--count", "2", "--site", site.path)
    assert isinstance(done.exception, SlurmUnavailable)
    assert done.stdout.count("SLURM DOES NOT ANSWER") == 2


def test_a_refresh_is_one_observation_and_statistics_come_seldom(live: FakeSlurm, site: SiteFile) -> None:
    asked: list[str] = []

    class Counted:
        def __getattr__(self, name: str) -> object:
            if name in {"observe", "fetch_diag"}:
                asked.append(name)
            return getattr(live, name)

    watch = Watch(site=site, client=cast("SlurmClient", Counted()))
    for _ in range(3):
        watch.look()
    assert asked == ["observe", "fetch_diag", "observe", "observe"]


def test_a_reclaim_between_two_looks_is_shown_without_the_history(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.cycle()
    for number in range(3, 10):
        world.slurm.start_job(JobId(str(number)), nodes="node03")
    (tmp_path / "history.db").write_bytes(b"damaged" * 500)
    watch = Watch(site=world.site, client=world.slurm)
    watch.look()
    borrower = JobId(next(str(n) for n in range(3, 10) if world.qos_of(n) == f"{REC}_borrow"))
    world.slurm.requeue_job(borrower)
    world.slurm.add_job(gpus(50, "risk", 4))
    world.slurm.start_job(JobId("50"), nodes="node03")
    text = draw(Picture(interval_s=2.0).with_look(watch.look(), now_s=START_S))
    assert re.search(rf"Reclaimed \d\d:\d\d:\d\d job {borrower} of rec \(borrow, ran .*\) for job 50 of risk", text)


def test_a_fault_of_ours_in_the_thread_is_not_swallowed() -> None:
    def look() -> Seen:
        raise ZeroDivisionError

    feed = Feed(look=look, picture=Picture(interval_s=2.0), now=lambda: 0.0)
    feed.tick()
    assert feed._thread is not None
    feed._thread.join(5)
    with pytest.raises(ZeroDivisionError):
        feed.tick()


def test_a_look_is_not_begun_before_it_is_due(tmp_path: Path) -> None:
    looks: list[int] = []

    def look() -> Seen:
        looks.append(1)
        return Seen(snapshot=make_snapshot(tmp_path))

    picture = look_once(Picture(interval_s=2.0), look, now=lambda: 10.0)
    feed = Feed(look=look, picture=picture, now=lambda: 11.9)
    feed.tick()
    assert (len(looks), feed._thread) == (1, None)


SCREEN = """
import sys
from slurm_plugin.cli import main, top
from tests.slurm_plugin.cli.recorded import busy_slurm
slurm = busy_slurm()
top.make_client = lambda _: slurm
sys.argv = ["fairgpu", "top", "--site", sys.argv[1]]
main.main()
"""
_LEFT = "\x1b[?1049l"


class Screen:
    """``fairgpu top`` on a terminal of 100 x 40."""

    def __init__(self, site: SiteFile) -> None:
        self.master, self._slave = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.before = termios.tcgetattr(self._slave)
        environment = {**os.environ, "TERM": "xterm"}
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCREEN, os.fspath(site.path)],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=environment,
            start_new_session=True,
        )
        self.shown = ""

    def read_until(self, text: str) -> None:
        until_s = time.monotonic() + 20
        while text not in self.shown:
            assert time.monotonic() < until_s, self.shown
            if select.select([self.master], [], [], 0.2)[0]:
                self.shown += os.read(self.master, 65_536).decode("utf-8", "replace")

    def is_restored(self) -> bool:
        return termios.tcgetattr(self._slave) == self.before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self._slave)


@pytest.fixture
def screen(site: SiteFile) -> Iterator[Screen]:
    opened = Screen(site)
    opened.read_until("risk")
    yield opened
    opened.close()


def test_q_leaves_and_restores_the_terminal(screen: Screen) -> None:
    assert "\x1b[?1049h" in screen.shown
    assert not screen.is_restored()
    os.write(screen.master, b"q")
    screen.read_until(_LEFT)
    assert screen.process.wait(10) == 0
    assert screen.is_restored()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_leaves_and_restores_the_terminal(screen: Screen, number: signal.Signals, code: int) -> None:
    screen.process.send_signal(number)
    screen.read_until(_LEFT)
    assert screen.process.wait(10) == code
    assert screen.is_restored()
