"""The page of an advice in a real browser: edited, judged again, sorted, without a request."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.advise.conftest import Advice
from tests.pages import complaints


def opened(browser: Browser, page: Path, width: int, scheme: str = "light") -> Page:
    """Open the page; it asks for nothing and complains of nothing."""
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    noted: list[str] = []
    tab.on("console", lambda message: noted.append(message.text))
    tab.on("pageerror", lambda error: noted.append(str(error)))
    tab.on("request", lambda asked: noted.append(asked.url) if asked.url != page.as_uri() else None)
    tab.goto(page.as_uri())
    tab.wait_for_function("document.body.dataset.drawn === 'yes'")
    assert noted == []
    return tab


def usd(tab: Page) -> int:
    """Return the price of the answer."""
    return int(re.search(r"([\d,]+) USD a month", tab.inner_text("#says"))[1].replace(",", ""))


MOST_HIGH = 4000
"""Pixels of the page, on a phone too."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_the_page_fits_the_screen_and_clips_no_label(
    browser: Browser, advice: Advice, width: int, scheme: str
) -> None:
    tab = opened(browser, advice.page, width, scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    outside = tab.evaluate(
        """() => {
          const box = document.querySelector('#scatter svg').getBoundingClientRect();
          return [...document.querySelectorAll('#scatter text')].filter((one) => {
            const it = one.getBoundingClientRect();
            return it.left < box.left - 1 || it.right > box.right + 1 || it.top < box.top - 1
              || it.bottom > box.bottom + 1;
          }).map((one) => one.textContent);
        }"""
    )
    assert outside == []
    assert tab.evaluate("document.documentElement.scrollHeight") <= MOST_HIGH
    # Evidence is five sentences at most.
    assert tab.locator("main > ul > li").count() <= 5
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    tab.close()


def test_finalists_are_judged_as_on_the_terminal(browser: Browser, advice: Advice) -> None:
    tab = opened(browser, advice.page, 1200)
    words = "told.options.filter((one) => one.full).map((one) => [one.name, judge(one)[0]])"
    every = [*advice.told["options"], *advice.told["others"]]
    outcomes = {
        option["option"]: option["outcome"]
        for option in every
        if option.get("fidelity", "full") == "full"
    }
    assert dict(tab.evaluate(words)) == outcomes
    # Seeds and bands are what tells `met` from `cannot tell`.
    spans = "told.options.map(({latency_ms}) => latency_ms.read.p99)"
    assert any(low < high for low, _, high in tab.evaluate(spans))
    tab.close()


def test_an_edited_objective_and_price_change_the_answer(browser: Browser, advice: Advice) -> None:
    tab = opened(browser, advice.page, 1200)
    says, price = tab.inner_text("#says"), usd(tab)
    assert says.startswith("Buy 3 x ")
    tab.fill("label:has-text('read p99') input", "0.01")
    assert tab.inner_text("#says") == "Nothing of what was simulated qualifies."
    tab.fill("label:has-text('read p99') input", "40")
    assert tab.inner_text("#says") == says
    tab.fill("label:has-text('budget') input", str(price - 1))
    assert tab.inner_text("#says") != says
    tab.fill("label:has-text('budget') input", "")
    tab.fill("label:has-text('operations a second') input", "100000000")
    assert not tab.inner_text("#says").startswith("Buy")
    tab.fill("label:has-text('operations a second') input", "4000")
    tab.click("summary:has-text('Prices')")
    # A hundred dollars more for each of the three VMs of the answer.
    vm = says.split(" with ")[0].removeprefix("Buy 3 x ")
    field = tab.locator(f"label:has-text('{vm}') input").first
    field.fill(str(float(field.input_value()) + 100))
    rows = tab.locator("#ranked tbody tr").all_inner_texts()
    name = says.removeprefix("Buy ").split(":")[0]
    full = [one for one in rows if name in one and "quick only" not in one]
    # Another option may be the same with a cache.
    assert any(f"{price + 300:,}" in one for one in full), full
    tab.close()


@pytest.mark.parametrize("width", [390, 1440])
def test_the_keyboard_alone_reaches_everything_and_leaves_again(
    browser: Browser, advice: Advice, width: int
) -> None:
    tab = opened(browser, advice.page, width)
    assert complaints(tab) == []
    tab.close()


def test_the_table_is_sorted_by_the_keyboard(browser: Browser, advice: Advice) -> None:
    tab = opened(browser, advice.page, 1200)
    tab.focus("button[data-by=usd]")
    for direction in ("ascending", "descending"):
        tab.keyboard.press("Enter")
        assert tab.get_attribute("th:has(button[data-by=usd])", "aria-sort") == direction
        told = tab.locator("#ranked tbody td:nth-child(3)").all_inner_texts()
        prices = [int(one.replace(",", "")) for one in told]
        assert prices == sorted(prices, reverse=direction == "descending")
        assert tab.evaluate("document.activeElement.dataset.by") == "usd"
    tab.close()


def test_finalists_tell_tail_lever_and_what_buys_them(browser: Browser, advice: Advice) -> None:
    tab = opened(browser, advice.page, 1200)
    first = tab.locator("#finalists .finalist").first
    assert "A stopped or lost VM loses" in first.inner_text()
    tail = first.locator("p.quiet").inner_text()
    pieces = [float(one) for one in re.findall(r"([\d.]+) ms", tail)]
    assert tail.startswith("p99: ")
    assert len(pieces) > 2
    first.locator("summary:has-text('azurerm')").click()
    terraform = first.locator("details[open] pre").inner_text()
    assert 'resource "azurerm_linux_virtual_machine" "node"' in terraform
    assert terraform.count("{") == terraform.count("}")
    first.locator("summary:has-text('az')").last.click()
    assert "az vm create" in first.inner_text()
    evidence = tab.locator("main > ul").inner_text()
    assert "Prices: eastus" in evidence
    assert "Seed 1" in evidence
    tab.close()


def test_hardware_is_shown_once_and_in_the_order_of_the_terminal(
    browser: Browser, advice: Advice
) -> None:
    """Where it was simulated in full, no sketch of it with other settings is in the page."""
    tab = opened(browser, advice.page, 1200)
    full = tab.evaluate("told.options.filter((one) => one.full).map((one) => one.hardware)")
    quick = tab.evaluate("told.options.filter((one) => !one.full).map((one) => one.hardware)")
    assert full
    assert not set(full) & set(quick)
    shown = tab.evaluate("ranked().map((row) => row.one.name)")
    every = [*advice.told["options"], *advice.told["others"]]
    assert shown == [option["option"] for option in every]
    words = tab.evaluate("ranked().map((row) => row.word)")
    assert words == [option["outcome"] for option in every]
    assert tab.locator("#ranked tbody tr:visible").count() == min(5, len(every))
    if len(every) > 5:
        tab.click("#fold")
        assert tab.locator("#ranked tbody tr:visible").count() == len(every)
    tab.close()
