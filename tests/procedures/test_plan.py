"""The order of trials: complete, reproducible, beds kept together, chance elsewhere."""

from __future__ import annotations

from fractions import Fraction
from itertools import groupby
from pathlib import Path

import pytest
from disklab import spec
from disklab.procedures.jobs import FULL
from disklab.procedures.plan import bed_of, expected_s, how_ordered, order
from disklab.procedures.turn import Turn
from hypothesis import given, settings
from hypothesis import strategies as st

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

LOCAL = spec.load(EXPERIMENTS / "cassandra-local-or-attached.yaml").trials("rehearse", nodes=3)
READ_AHEAD = spec.load(EXPERIMENTS / "cassandra-disk-caching-read-ahead.yaml").trials("rehearse")
CLIFF = spec.load(EXPERIMENTS / "cassandra-cache-cliff.yaml").trials("rehearse")

MATRICES = {"local or attached": LOCAL, "read-ahead": READ_AHEAD, "cache cliff": CLIFF}


@pytest.mark.parametrize("name", MATRICES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), repeats=st.integers(1, 4))
def test_every_trial_that_can_be_runs_once_in_each_repeat(
    name: str, seed: int, repeats: int
) -> None:
    trials = MATRICES[name]
    turns = order(trials, repeats, seed, FULL)
    able = [trial.index for trial in trials if trial.refused is None]
    assert sorted(turn.key for turn in turns) == sorted(
        (index, repeat) for index in able for repeat in range(repeats)
    )
    # Repeats are the outer loop: a drift of the machine meets all trials alike.
    assert [turn.repeat for turn in turns] == sorted(turn.repeat for turn in turns)
    # And a bed is built once a repeat at most.
    visits = [key for key, _ in groupby(turns, lambda turn: turn.bed)]
    beds = {turn.bed for turn in turns}
    assert len(visits) <= repeats * len(beds)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), data=st.data())
def test_a_resumed_run_goes_on_in_the_order_it_began_with(seed: int, data: st.DataObject) -> None:
    turns = order(LOCAL, 3, seed, FULL)
    assert order(LOCAL, 3, seed, FULL) == turns
    done = data.draw(st.sets(st.sampled_from([turn.key for turn in turns])))
    left = order(LOCAL, 3, seed, FULL, done)
    assert left == [turn for turn in turns if turn.key not in done]


def test_another_seed_draws_another_order() -> None:
    orders = {tuple(turn.key for turn in order(READ_AHEAD, 1, seed, FULL)) for seed in range(5)}
    assert len(orders) == 5


def test_one_more_repeat_changes_no_order_before_it() -> None:
    two, three = order(LOCAL, 2, 7, FULL), order(LOCAL, 3, 7, FULL)
    assert three[: len(two)] == two


def beds_of(turns: list[Turn]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for turn in turns:
        found.setdefault(turn.bed, set()).add(str(sorted(turn.trial.factors.items())))
    return found


def test_caching_read_ahead_and_threads_share_a_bed() -> None:
    assert len(beds_of(order(READ_AHEAD, 1, 1, FULL))) == 1


def test_disks_copies_and_rows_need_beds_of_their_own() -> None:
    # Two disks with one or three copies; five copies are refused with three nodes.
    assert len(beds_of(order(LOCAL, 1, 1, FULL))) == 4
    # Attached disks with and without caching share one for each number of rows.
    rows = {trial.spec.dataset.rows for trial in CLIFF if trial.spec.dataset is not None}
    beds = beds_of(order(CLIFF, 1, 1, FULL))
    local = [trial for trial in CLIFF if trial.refused is None and "local" in str(trial.factors)]
    assert len(beds) == len(rows) + len(local)


def test_settings_that_a_restart_changes_share_a_bed_unless_caches_stay_as_left() -> None:
    galera = (EXPERIMENTS / "galera-local-or-attached.yaml").read_text()
    for text, beds in (
        (galera, 2),
        # On other pages rows lie otherwise.
        (
            galera.replace(
                "_at_trx_commit: 0", "_at_trx_commit: 0, database.settings.innodb_page_size: 4096"
            ),
            4,
        ),
        (galera.replace("page_cache: cold", "page_cache: as-left"), 4),
    ):
        turns = order(spec.parse(text).trials("rehearse"), 1, 1, FULL)
        assert len(turns) == 4
        assert len(beds_of(turns)) == beds, text
    # A trial that takes the cache as another one left it stays on the bed of that one.
    left = galera.replace("factors:\n", "factors:\n  before.page_cache: [cold, as-left]\n")
    turns = order(spec.parse(left).trials("rehearse"), 1, 1, FULL)
    assert [len(members) for members in beds_of(turns).values()] == [2] * 4
    # A node of Cassandra is made for its settings.
    plain = LOCAL[0].here
    database = plain.database.model_copy(update={"settings": {"concurrent_reads": 64}})
    other = plain.model_copy(update={"database": database})
    assert bed_of(other, restarts=True) != bed_of(plain, restarts=True)


def test_a_script_with_tables_of_its_own_has_a_bed_of_its_own() -> None:
    text = (EXPERIMENTS / "mysql-8-sysbench.yaml").read_text(encoding="utf-8")
    read, insert, tpcb = (
        spec.parse(text.replace("oltp_write_only", script)).trials("rehearse")[0].here
        for script in ("oltp_read_write", "oltp_write_only", "tpcb")
    )
    assert bed_of(read) == bed_of(insert) != bed_of(tpcb)


def test_another_scale_is_another_bed() -> None:
    experiment = spec.load(EXPERIMENTS / "cassandra-local-or-attached.yaml")
    one, other = (
        experiment.trials("rehearse", scale=Fraction(1, scale))[1].here for scale in (100, 200)
    )
    assert bed_of(one) != bed_of(other)


def test_a_disk_without_a_database_takes_its_fill_and_its_measurement() -> None:
    mix = spec.load(EXPERIMENTS / "azure-read-write-mix.yaml").trials("rehearse")
    turns = order(mix, 1, 1, FULL)
    # 20 s of the disk in slow motion, of which an effort allows so much here. Made in seconds,
    # filled with 256 MiB; no hosts, no rows and no warm-up of a database.
    here = [min(20.0 * turn.trial.share.time_dilation, FULL.longest_run_s) for turn in turns]
    beside = [one - run for one, run in zip(expected_s(turns), here, strict=True)]
    assert all(3.0 < one < 10.0 for one in beside), beside
    assert "database" not in how_ordered(turns, 1, 1)
    assert "database" in how_ordered(order(LOCAL, 1, 1, FULL), 1, 1)
