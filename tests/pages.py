"""Pages for those who see little or use no mouse: functions for the browser, for tests."""

from __future__ import annotations

from playwright.sync_api import Page

CONTRAST = """
() => {
  const parsed = (colour) => {
    const found = colour.match(/[\\d.]+/g).map(Number);
    return found.length === 4 ? found : [...found, 1];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = parsed(getComputedStyle(one).backgroundColor);
      if (found[3] === 1) return found;
    }
    return [255, 255, 255, 1];
  };
  const faded = (element) => {
    let opacity = 1;
    for (let one = element; one; one = one.parentElement) {
      const style = getComputedStyle(one);
      opacity *= Number(style.opacity) * Number(one.getAttribute('fill-opacity') ?? 1);
    }
    return opacity;
  };
  const told = new Set();
  let seen = 0;
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || ['SCRIPT', 'STYLE'].includes(element.tagName)) continue;
    if (!element.getClientRects().length || element.getAttribute('opacity') === '0') continue;
    const style = getComputedStyle(element), paper = behind(element);
    const inside = element instanceof SVGElement;
    const colour = parsed(inside ? style.fill : style.color), opacity = colour[3] * faded(element);
    const mixed = [0, 1, 2].map((n) => colour[n] * opacity + paper[n] * (1 - opacity));
    const [a, b] = [light(mixed), light(paper)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    seen += 1;
    if (ratio < (large ? 3 : 4.5)) told.add(`${element.textContent}: ${ratio.toFixed(2)}`);
  }
  return { seen, low: [...told] };
}
"""
"""Texts whose contrast with what is behind them is below level AA of WCAG 2.1."""


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
