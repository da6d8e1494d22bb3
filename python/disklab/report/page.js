// Draws the charts: those in sight first, the rest while the browser has nothing else to do.
(() => {
  const config = JSON.parse(document.getElementById("chart-config").textContent);
  const waiting = new Set(document.querySelectorAll(".chart"));
  async function draw(place) {
    if (!waiting.delete(place)) return;
    const spec = JSON.parse(place.nextElementSibling.textContent);
    await vegaEmbed(place, spec, { config, renderer: "svg", actions: false, mode: "vega-lite" });
    place.dataset.drawn = "yes";
  }
  const visible = (place) => place.clientWidth > 0;
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "400px" });
  waiting.forEach((place) => seen.observe(place));
  const idle = window.requestIdleCallback || ((call) => setTimeout(call, 30));
  function next() {
    const place = [...waiting].find(visible);
    if (place) draw(place).finally(() => idle(next));
    else document.body.dataset.drawn = "yes";
  }
  idle(next);
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
    waiting.forEach(draw);
  });
})();
