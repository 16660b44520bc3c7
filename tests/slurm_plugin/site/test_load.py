from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from policies.site_policy import BandPolicy, FactorMode, JobOrder, Mode, Quota, QuotaKind, TagSource
from slurm_plugin.errors import ConfigError
from slurm_plugin.site import find_site_path, load_site, parse_site
from slurm_plugin.site.load import MAX_BYTES
from slurm_plugin.site.model import HookSettings

REPOSITORY = Path(__file__).parents[3]


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_site(text)
    return caught.value.problems


def test_the_documented_example_loads_with_exact_weights() -> None:
    policy = load_site(REPOSITORY / "examples" / "ecommerce.yaml").policy
    weights = {agent.name: agent.base_weight for agent in policy.agents}
    assert weights == {"others": Fraction(1, 10), "recommender": Fraction(3, 10), "risk": Fraction(3, 5)}


def test_defaults_are_cautious(minimal: str) -> None:
    site = parse_site(minimal)
    assert site.policy.mode is Mode.OBSERVE
    assert site.policy.tag_source is TagSource.COMMENT
    assert site.policy.factor_mode is FactorMode.BLEND
    assert site.policy.agents[0].order is JobOrder.FIFO
    assert (site.hook.deadline_s, site.rebalancer.interval_s, site.rebalancer.metrics_listen) == (
        0.02,
        5.0,
        None,
    )
    assert site.hook.peers == ("root", "slurm")
    assert site.paths.state_dir == Path("/var/lib/fairgpu")


def test_every_setting_reaches_the_program(minimal: str) -> None:
    site = parse_site(
        minimal
        + "site_factor: {scale: 900, mode: dominant}\n"
        + "sla: {bound: 1.5, smoothing: 1m, hysteresis: 0.25, max_age: 2m, indicators: /x/y.prom}\n"
        + "rebalancer: {interval: 2s, updates_per_second: 7, metrics_listen: '[::1]:9465'}\n"
        + "hook: {socket: /x/h.sock, deadline: 15ms, breaker_failures: 4,"
        + " breaker_pause: 9s, peers: [slurm]}\n"
        + "paths: {state_dir: /x/s, run_dir: /x/r}\n"
    )
    assert (site.policy.factor_scale, site.policy.factor_mode) == (900, FactorMode.DOMINANT)
    tuning = site.policy.sla
    assert (tuning.bound, tuning.smoothing_s) == (Fraction(3, 2), 60.0)
    assert (tuning.hysteresis_frac, tuning.max_age_s) == (0.25, 120.0)
    assert site.sla_indicators == Path("/x/y.prom")
    rebalancer = site.rebalancer
    assert (rebalancer.interval_s, rebalancer.updates_per_second, rebalancer.metrics_listen) == (
        2.0,
        7,
        "[::1]:9465",
    )
    hook = site.hook
    assert (hook.socket, hook.deadline_s, hook.breaker_failures) == (Path("/x/h.sock"), 0.015, 4)
    assert (hook.breaker_pause_s, hook.peers) == (9.0, ("slurm",))
    assert (site.paths.state_dir, site.paths.run_dir) == (Path("/x/s"), Path("/x/r"))


def test_settings_can_be_made_by_field_name_in_code() -> None:
    assert HookSettings(deadline_s=0.05, socket=Path("/x")).deadline_s == 0.05


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    text = "clutser: x\nmode: enforc\npartitions: []\nagents:\n  a: {accounts: [a], base_wieght: 1}\n"
    assert problems_of(text) == (
        "line 1: cluster: is missing",
        "line 1: clutser: unknown key; did you mean 'cluster'?",
        "line 2: mode: must be 'observe', 'advise' or 'enforce', got 'enforc'",
        "line 3: partitions: must not be empty",
        "line 5: agents.a.base_weight: is missing",
        "line 5: agents.a.base_wieght: unknown key; did you mean 'base_weight'?",
    )


@pytest.mark.parametrize(
    ("weight", "want"),
    [
        # scenarios.json K16: an unparsable fraction must not be accepted.
        ("nan", "must be a finite number, got nan"),
        (".nan", "must be a finite number, got .nan"),
        (".inf", "must be a finite number, got .inf"),
        ("-Infinity", "must be a finite number, got -Infinity"),
        ("-0.5", "must not be negative, got -0.5"),
        ("1e400", "is too large, at most 1000000000000, got 1E+400"),
        ("1e999999999", "is too large, at most 1000000000000"),
        ("9223372036854775808", "is too large, at most 1000000000000, got 9223372036854775808"),
        ("1" * 5000, "must be a number of at most 40 digits"),
        ("1e-400", "has more than 18 decimals"),
        ("'0.6'", "must be a number"),
        ("true", "must be a number such as 0.6, got true"),
        ("high", "must be a number such as 0.6, got 'high'"),
        ("[1]", "must be a number such as 0.6, got a list"),
        ("{}", "must be a number such as 0.6, got a mapping"),
        ("", "must be a number such as 0.6, got nothing"),
    ],
)
def test_a_weight_that_is_no_finite_number_is_named(weight: str, want: str) -> None:
    problems = problems_of(f"cluster: c\npartitions: [p]\nagents:\n  a: {{accounts: [a], base_weight: {weight}}}\n")
    assert len(problems) == 1
    assert problems[0].startswith("line 4: agents.a.base_weight: ")
    assert want in problems[0]


def test_weights_that_are_all_zero_are_refused() -> None:
    text = "cluster: c\npartitions: [p]\nagents:\n  a: {accounts: [a], base_weight: 0}\n"
    assert problems_of(text) == ("line 3: agents: at least one base_weight must be greater than 0",)


@pytest.mark.parametrize("name", ["Risk", "1st", "a b", "a.b", "-x", "a" * 41, "ü"])
def test_an_agent_name_outside_the_rule_is_refused(name: str) -> None:
    text = f"cluster: c\npartitions: [p]\nagents:\n  '{name}': {{accounts: [a], base_weight: 1}}\n"
    assert "must start with a lower-case letter" in problems_of(text)[0]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("hook: {deadline: 3s}", "hook.deadline: must be at most 200ms, got 3s"),
        ("hook: {deadline: 0ms}", "hook.deadline: must be at least 1ms, got 0ms"),
        ("hook: {deadline: 20}", "hook.deadline: needs a unit (us, ms, s, m, h, d), for example 20s"),
        (
            "hook: {deadline: [20ms]}",
            "hook.deadline: must be a duration such as 20ms, 5s, 2h or 1d, got a list",
        ),
        ("hook: {breaker_failures: true}", "hook.breaker_failures: must be a whole number, got true"),
        ("hook: {peers: []}", "hook.peers: must not be empty"),
        ("hook: {peers: [root, root]}", "hook.peers[1]: 'root' is listed twice"),
        ("hook: {socket: run/x}", "hook.socket: must be an absolute path without '..', got 'run/x'"),
        ("hook: {socket: /a/../b}", "hook.socket: must be an absolute path without '..'"),
        (f"hook: {{socket: /{'a' * 120}}}", "hook.socket: is too long for a Unix socket (at most 107 bytes)"),
        ("hook: [1]", "hook: must be a mapping (key: value), got a list"),
        ("rebalancer: {interval: 50ms}", "rebalancer.interval: must be at least 200ms, got 50ms"),
        ("rebalancer: {interval_s: 5}", "rebalancer.interval_s: unknown key; did you mean 'interval'?"),
        ("rebalancer: {updates_per_second: 0}", "rebalancer.updates_per_second: must be at least 1, got 0"),
        (
            "rebalancer: {updates_per_second: 1.5}",
            "rebalancer.updates_per_second: must be a whole number, got 1.5",
        ),
        ("rebalancer: {metrics_listen: '9465'}", "rebalancer.metrics_listen: must be HOST:PORT"),
        ("rebalancer: {metrics_listen: 'a:70000'}", "rebalancer.metrics_listen: must be HOST:PORT"),
        ("rebalancer: {metrics_listen: 9465}", "rebalancer.metrics_listen: must be HOST:PORT such as 127.0.0.1:9465"),
        ("site_factor: {scale: 99}", "site_factor.scale: must be at least 100, got 99"),
        ("site_factor: {scale: 9223372036854775808}", "site_factor.scale: must be at most 1000000000"),
        (
            "site_factor: {mode: dominnant}",
            "site_factor.mode: must be 'blend' or 'dominant', got 'dominnant'",
        ),
        ("sla: {bound: 0.5}", "sla.bound: must be at least 1, got 0.5"),
        ("sla: {bound: .inf}", "sla.bound: must be a finite number, got .inf"),
        ("sla: {hysteresis: 2}", "sla.hysteresis: must be a fraction between 0 and 1, got 2"),
        ("sla: {max_age: 0s}", "sla.max_age: must be greater than 0s, got 0s"),
        ("tag_source: coment", "tag_source: must be 'comment', 'wckey' or 'account', got 'coment'"),
        ("policy: [wdrf]", "policy: must be text (in quotes if it looks like a number), got a list"),
        ("policy: wdfr", "policy: no policy is called 'wdfr'; did you mean 'wdrf'?"),
        ("xyzzy: 1", "xyzzy: unknown key; known here: cluster, mode, policy, partitions"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(minimal: str, line: str, want: str) -> None:
    problems = problems_of(minimal + line + "\n")
    assert len(problems) == 1
    assert problems[0].startswith(f"line 6: {want}")


@pytest.mark.parametrize(
    ("agent", "want"),
    [
        ("{accounts: risk, base_weight: 1}", "accounts: must be a list such as [a, b], got 'risk'"),
        ("{accounts: [], base_weight: 1}", "accounts: must not be empty"),
        ("{accounts: [risk, risk], base_weight: 1}", "accounts[1]: 'risk' is listed twice"),
        ("{accounts: [Risk], base_weight: 1}", "accounts[0]: 'Risk' never matches"),
        ("{accounts: [12], base_weight: 1}", "accounts[0]: must be text; put it in quotes if 12 is meant"),
        ("{accounts: ['a b'], base_weight: 1}", "accounts[0]: must be one name without blanks"),
        ("{accounts: [rec], base_weight: 1}", "accounts[0]: account 'rec' already belongs to agent 'aaa'"),
        ("{accounts: [a], base_weight: 1, order: lifo}", "order: must be 'fifo' or 'deadline', got 'lifo'"),
        (
            "{accounts: [a], base_weight: 1, sla: {queue_wait: 0s}}",
            "sla.queue_wait: must be greater than 0s, got 0s",
        ),
        ("{accounts: [a], base_weight: 1, sla: {queue: 1s}}", "sla.queue: unknown key"),
        ("{accounts: [a], base_weight: 1, sla: {p99_latency: 1s}}", "sla.p99_latency: nothing measures it"),
        ("nothing", "must be a mapping (key: value), got 'nothing'"),
    ],
)
def test_a_wrong_agent_is_named(agent: str, want: str) -> None:
    head = "cluster: c\npartitions: [p]\nagents:\n  aaa: {accounts: [rec], base_weight: 1}\n"
    problems = problems_of(f"{head}  zzz: {agent}\n")
    assert len(problems) == 1
    path = "line 5: agents.zzz" + ("." if agent.startswith("{") else ": ")
    assert problems[0].startswith(path + want)


def test_tags_for_users_are_refused_where_tags_are_not_read() -> None:
    text = (
        "cluster: c\npartitions: [p]\ntag_source: account\n"
        "agents:\n  a: {accounts: [a], users: [carol], base_weight: 1}\n"
    )
    assert "nothing reads it with tag_source: account" in problems_of(text)[0]


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "hello\n"])
def test_a_file_that_is_no_mapping_says_how_it_starts(text: str) -> None:
    assert problems_of(text) == ("line 1: the file must be a mapping that starts with 'cluster:'",)


def test_a_missing_file_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"start from examples/ecommerce\.yaml"):
        load_site(tmp_path / "none.yaml")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        load_site(path)


def test_text_that_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_bytes(b"cluster: c\nx: \xff\n")
    with pytest.raises(ConfigError) as caught:
        load_site(path)
    assert caught.value.problems == ("line 2: not UTF-8 text",)


@pytest.mark.parametrize("path", [Path("/dev/null"), Path("/tmp")])
def test_what_is_no_regular_file_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a regular file|Is a directory"):
        load_site(path)


def test_the_file_is_found_by_argument_then_variable_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRGPU_SITE", "/x/env.yaml")
    assert find_site_path(Path("/x/arg.yaml")) == Path("/x/arg.yaml")
    assert find_site_path() == Path("/x/env.yaml")
    monkeypatch.delenv("FAIRGPU_SITE")
    assert find_site_path() == Path("/etc/fairgpu/site.yaml")


BANDED = "bands: {}\n"


def test_without_a_bands_section_there_are_none(minimal: str) -> None:
    assert parse_site(minimal).policy.bands is None


def test_an_empty_bands_section_takes_the_defaults(minimal: str) -> None:
    assert parse_site(minimal + BANDED).policy.bands == BandPolicy()


def test_every_band_setting_reaches_the_policy(minimal: str) -> None:
    text = (
        "bands: {borrow_frac: 0.25, opportunistic: false, grace: 2m, window: 2h, max_reclaims: 5, starve_after: 1h,"
        " max_borrow_nodes: 4, template_qos: basic, managed_qos: [normal, basic], set_default_qos: false}\n"
    )
    assert parse_site(minimal + text).policy.bands == BandPolicy(
        borrow_frac=Fraction(1, 4),
        opportunistic=False,
        grace_s=120,
        window_s=7_200.0,
        max_reclaims=5,
        starve_after_s=3_600.0,
        max_borrow_nodes=4,
        template_qos="basic",
        managed_qos=("normal", "basic"),
        set_default_qos=False,
    )


def quota_site(quota: str, more: str = BANDED) -> str:
    return f"cluster: c\npartitions: [p]\nagents:\n  a: {{accounts: [a], base_weight: 1, {quota}}}\n{more}"


@pytest.mark.parametrize(
    ("quota", "want"),
    [
        ("quota: auto", Quota()),
        ("quota: none", Quota(kind=QuotaKind.NONE)),
        (
            "quota: {mem: 2G, gres/gpu: 0, cpu: 4, 'gres/gpu:a100': 2}",
            Quota(
                kind=QuotaKind.EXPLICIT,
                amounts=(("cpu", 4), ("gres/gpu", 0), ("gres/gpu:a100", 2), ("mem", 2048)),
            ),
        ),
    ],
)
def test_quotas_are_words_or_amounts(quota: str, want: Quota) -> None:
    assert parse_site(quota_site(quota)).policy.agents[0].quota == want


def test_a_borrowing_limit_is_amounts_memory_in_mib() -> None:
    agent = parse_site(quota_site("borrowing_limit: {gres/gpu: 2, mem: 4096}")).policy.agents[0]
    assert agent.borrowing_limit == (("gres/gpu", 2), ("mem", 4096))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (quota_site("quota: some"), "agents.a.quota: must be auto, none or amounts"),
        (quota_site("quota: {}"), "must name at least one TRES"),
        (quota_site("quota: {gpus: 4}"), "'gpus' is no TRES that can be shared; write cpu, mem, gres/gpu"),
        (quota_site("quota: {gres/gpu: -1}"), "gres/gpu must be a whole number, at least 0, got -1"),
        (quota_site("quota: {gres/gpu: 1.5}"), "gres/gpu must be a whole number, at least 0, got 1.5"),
        (quota_site("quota: {mem: lots}"), "mem must be MiB or a size such as 512G"),
        (quota_site("borrowing_limit: 4"), "agents.a.borrowing_limit: must be amounts such as"),
        (quota_site("quota: {cpu: 1}", ""), "agents.a.quota: nothing reads it without a bands section"),
        (quota_site("order: fifo", "bands: {grace: 1.5s}\n"), "bands.grace: must be whole seconds, got 1500ms"),
        (quota_site("order: fifo", "bands: {borrow: 1}\n"), "bands.borrow: unknown key; did you mean 'borrow_frac'?"),
        (quota_site("order: fifo", "bands: {managed_qos: [Normal]}\n"), "Slurm keeps QOS names in lower case"),
        (quota_site("order: fifo", "bands: {managed_qos: [a, a]}\n"), "bands.managed_qos[1]: 'a' is listed twice"),
        (quota_site("order: fifo", "bands: {template_qos: fg_x}\n"), "names that begin with fg_ are those of our own"),
    ],
)
def test_problems_of_quotas_and_bands_are_named(text: str, want: str) -> None:
    (problem,) = problems_of(text)
    assert want in problem


def test_weight_0_needs_a_quota_of_its_own(minimal: str) -> None:
    text = minimal.replace("0.4}", "0.4}\n  idle: {accounts: [idle], base_weight: 0}") + BANDED
    (problem,) = problems_of(text)
    assert "agents.idle.quota: an agent of base_weight 0 needs an explicit quota" in problem
    assert parse_site(text.replace("base_weight: 0}", "base_weight: 0, quota: {cpu: 2}}")).policy.bands is not None


def test_agents_whose_qoses_would_have_one_name_are_refused(minimal: str) -> None:
    text = minimal.replace("0.4}", "0.4}\n  risk_borrow: {accounts: [x], base_weight: 1}") + BANDED
    (problem,) = problems_of(text)
    assert "agents.risk_borrow: its QOS would have the name of one of agent 'risk'" in problem


@pytest.mark.parametrize("name", ["ecommerce", "inference"])
def test_both_examples_have_bands_and_opportunistic_work(name: str) -> None:
    bands = load_site(REPOSITORY / "examples" / f"{name}.yaml").policy.bands
    assert bands is not None
    assert bands.opportunistic
