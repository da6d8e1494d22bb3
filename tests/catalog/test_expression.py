"""Disk expressions are read, printed and read back; what is wrong is told all at once."""

from __future__ import annotations

import pytest
from disklab.catalog import load_catalog
from disklab.catalog.quantity import MOST_DISKS, DiskExpression, parse_bytes, parse_disks
from disklab.catalog.suggest import suggestions
from disklab.errors import UserError
from hypothesis import given
from hypothesis import strategies as st

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,9}(/[A-Za-z][A-Za-z0-9_.-]{0,12})?", fullmatch=True)
amounts = st.none() | st.integers(min_value=0, max_value=10**14)
expressions = st.builds(
    DiskExpression,
    name=names,
    count=st.integers(min_value=1, max_value=MOST_DISKS),
    size_bytes=amounts,
    iops=amounts,
    bytes_per_s=amounts,
    on_demand_burst=st.booleans(),
    performance_plus=st.booleans(),
)


@given(expressions)
def test_what_is_printed_is_read_back(expression: DiskExpression) -> None:
    assert parse_disks(str(expression)) == expression


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_all_parts(text: str) -> None:
    try:
        parsed = parse_disks(text)
    except UserError as error:
        check_parts(error)
    else:
        assert parse_disks(str(parsed)) == parsed


def check_parts(error: UserError) -> None:
    assert error.problems
    assert all(p.place and p.value and p.rule and p.way_out for p in error.problems)


def test_the_forms_of_the_manual() -> None:
    assert parse_disks("azure/P30") == DiskExpression("azure/P30")
    assert parse_disks("4 x azure/P30") == DiskExpression("azure/P30", count=4)
    assert parse_disks("local") == DiskExpression("local")
    assert parse_disks("azure/PremiumV2(250GiB, 10000 IOPS, 250 MB/s)") == DiskExpression(
        "azure/PremiumV2", size_bytes=250 << 30, iops=10_000, bytes_per_s=250_000_000
    )
    assert parse_disks(" 2 x aws/gp3( 1TiB , 125 MiB/s ) ") == DiskExpression(
        "aws/gp3", count=2, size_bytes=1 << 40, bytes_per_s=125 << 20
    )
    assert parse_disks("azure/P30(On-Demand-Burst)").on_demand_burst


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a disk expression reads"),
        ("azure/P30(", "a disk expression reads"),
        ("0 x azure/P30", "a volume has 1 to 256 disks"),
        ("999999999 x azure/P30", "a volume has 1 to 256 disks"),
        ("azure/P30(fast)", "an argument is a size"),
        ("azure/P30(on-demand-bursts)", "did you mean on-demand-burst?"),
        ("azure/Ultra(1GiB, 2GiB)", "each argument may stand once"),
    ],
)
def test_what_is_wrong_is_told(text: str, message: str) -> None:
    with pytest.raises(UserError, match=r".") as caught:
        parse_disks(text)
    assert message in str(caught.value)


def test_all_wrong_arguments_are_told_at_once() -> None:
    with pytest.raises(UserError) as caught:
        parse_disks("0 x azure/Ultra(quick, 1GiB, 1GiB)")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("text", "amount"), [("1.5TB", 1_500_000_000_000), ("0.5 KiB", 512), ("4096", 4096)]
)
def test_an_amount_may_have_a_fraction_of_whole_bytes(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["1.5", "0.3B", "1.TB", "100G", "1e9"])
def test_an_amount_that_is_no_whole_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a number of whole bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("word", "first"),
    [("azure/P21", "azure/P20"), ("P31", "azure/P30"), ("S41", "azure/S40")],
)
def test_the_nearest_size_comes_first(word: str, first: str) -> None:
    assert suggestions(word, load_catalog().disks)[0] == first
