"""A page by the keyboard alone: every control is reached, in order, seen, and left again."""

from __future__ import annotations

from playwright.sync_api import Page

MARKED = """() => {
  const able = 'a[href], button, input, select, textarea, summary, pre[tabindex], [tabindex]';
  const stops = [...document.querySelectorAll(able)].filter((one) => one.tabIndex >= 0
    && !one.disabled && one.checkVisibility({visibilityProperty: true}));
  return stops.map((one, number) => {
    one.dataset.stop = number;
    const words = one.getAttribute('aria-label') || one.textContent.trim() || one.name || one.id;
    return `${number} ${one.tagName.toLowerCase()} ${words.slice(0, 40)}`;
  });
}"""
FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one);
  const box = one.getBoundingClientRect();
  const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  const inside = box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight;
  return [one.dataset.stop ?? (one === document.body ? 'body' : one.tagName), outlined, inside];
}"""


def complaints(tab: Page) -> list[str]:
    """Press Tab from the page's beginning to its end, and return what a reader would trip over."""
    labels: list[str] = tab.evaluate(MARKED)
    assert labels
    wrong, order = [], list[int]()
    for _ in range(2 * len(labels) + 20):
        tab.keyboard.press("Tab")
        stop, outlined, inside = tab.evaluate(FOCUSED)
        if stop == "body" or (order and stop == "0"):
            break
        label = labels[int(stop)] if stop.isdecimal() else stop
        if not outlined:
            wrong.append(f"nothing shows the focus on {label}")
        if not inside:
            wrong.append(f"the focus is out of sight on {label}")
        if stop.isdecimal():
            order.append(int(stop))
    else:
        wrong.append("the page cannot be left")
    wrong += [f"never reached: {labels[n]}" for n in range(len(labels)) if n not in order]
    return wrong + ([] if order == sorted(order) else [f"out of order: {order}"])
