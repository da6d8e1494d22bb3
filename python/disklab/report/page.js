// Draws the charts: those in sight first, the rest while the browser has nothing else to do.
(() => {
  const config = JSON.parse(document.getElementById("chart-config").textContent);
  const colours = JSON.parse(document.getElementById("chart-colours").textContent);
  const waiting = new Set(document.querySelectorAll(".chart"));
  const tips = { theme: "custom", offsetX: 12, offsetY: 12 };
  const options = { config, renderer: "svg", actions: false, mode: "vega-lite", tooltip: tips };
  const specOf = (place) => JSON.parse(place.nextElementSibling.textContent);
  async function draw(place) {
    if (!waiting.delete(place)) return;
    await vegaEmbed(place, specOf(place), options);
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

  // A chart as a file: with title, key and origin, in the colours of paper.
  const svgNames = "http://www.w3.org/2000/svg";
  function element(name, attributes, content = "") {
    const made = document.createElementNS(svgNames, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = content;
    return made;
  }
  function lines(text, letters) {
    const found = [""];
    for (const word of text.split(" ")) {
      if (found.at(-1) && found.at(-1).length + word.length >= letters) found.push("");
      found[found.length - 1] += (found.at(-1) ? " " : "") + word;
    }
    return found;
  }
  function standing(figure) {
    const told = JSON.parse(figure.querySelector(".told").textContent);
    const drawn = figure.querySelector(".chart svg");
    const width = drawn.width.baseVal.value, height = drawn.height.baseVal.value;
    const letters = Math.floor(width / 6.2);
    const heading = figure.closest("section").querySelector("h2").textContent;
    const title = figure.querySelector("h3")?.textContent;
    const whole = element("svg", { xmlns: svgNames, "font-family": config.font });
    const parts = [];
    let top = 16;
    const write = (text, size, fill, weight = 400, x = 0) =>
      parts.push(element("text", { x, y: top, "font-size": size, "font-weight": weight, fill }, text));
    write(title ? `${heading}: ${title}` : heading, 14, "var(--ink)", 600);
    for (const [number, name] of told.key.entries()) {
      top += 17;
      const fill = `var(--series${number % config.range.category.length})`;
      parts.push(element("rect", { x: 0, y: top - 6, width: 16, height: 3, fill }));
      write(name, 11, "var(--ink)", 400, 23);
    }
    if (told.dashed.length) { top += 17; write(`dashed: ${told.dashed.join(", ")}`, 11, "var(--muted)"); }
    top += 12;
    const picture = drawn.cloneNode(true);
    picture.setAttribute("y", top);
    parts.push(picture);
    top += height + 6;
    for (const line of lines(figure.querySelector("figcaption").textContent, letters)) {
      top += 14; write(line, 10, "var(--muted)");
    }
    const all = { width: width + 32, height: top + 28 };
    for (const [key, value] of Object.entries(all)) whole.setAttribute(key, value);
    whole.append(element("rect", { ...all, fill: "var(--paper)" }));
    const inner = element("g", { transform: "translate(16,12)" });
    inner.append(...parts);
    whole.append(inner);
    const text = new XMLSerializer().serializeToString(whole);
    return { ...all, text: text.replace(/var\(--(\w+)\)/g, (_, name) => colours[name] ?? "#000") };
  }
  function entriesOf(spec, fields) {
    if (!spec || typeof spec !== "object") return null;
    const entries = Array.isArray(spec) && spec.length && spec.every((one) => one && typeof one === "object");
    if (entries && fields.slice(0, 2).every((name) => spec.some((one) => name in one))) return spec;
    for (const inner of Object.values(spec)) { const found = entriesOf(inner, fields); if (found) return found; }
    return null;
  }
  function csvOf(figure) {
    const { columns } = JSON.parse(figure.querySelector(".told").textContent);
    const fields = Object.keys(columns);
    const cell = (value) => {
      let text = value == null ? "" : String(value);
      if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
      return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const rows = entriesOf(specOf(figure.querySelector(".chart")), fields) ?? [];
    return [Object.values(columns), ...rows.map((one) => fields.map((name) => one[name]))]
      .map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }
  async function pngOf(figure) {
    const { text, width, height } = standing(figure);
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = width * 2; canvas.height = height * 2;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }
  const kinds = {
    svg: async (figure) => new Blob([standing(figure).text], { type: "image/svg+xml" }),
    csv: async (figure) => new Blob([csvOf(figure)], { type: "text/csv" }),
    png: pngOf,
  };
  const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-save]");
    if (!button) return;
    const figure = button.closest("figure"), kind = button.dataset.save;
    const name = [figure.closest("section").id, slug(figure.querySelector("h3")?.textContent ?? "")];
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await kinds[kind](figure));
    link.download = `${name.filter(Boolean).join("-")}.${kind}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });

  // Tables are sorted by the heading that is pressed; a row's note goes with it.
  const sizes = { us: 1e-3, ms: 1, s: 1e3, min: 6e4, h: 3.6e6 };
  function size(text) {
    const found = text.replaceAll(",", "").replace("\u2212", "-").match(/^[$+]?(-?[\d.]+)(?:\s*([a-z%]+))?/);
    if (!found) return null;
    // "3 times" and "+14 %" are changes: both as a change of one.
    return found[2] === "times" ? (Number(found[1]) - 1) * 100 : Number(found[1]) * (sizes[found[2]] ?? 1);
  }
  function sort(head, column) {
    const body = head.closest("table").tBodies[0];
    const downward = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
    const groups = [];
    for (const row of body.rows) row.classList.contains("note") ? groups.at(-1).push(row) : groups.push([row]);
    const value = ([row]) => row.cells[column]?.textContent.trim() ?? "";
    groups.sort((one, other) => {
      const [first, second] = [value(one), value(other)], [a, b] = [size(first), size(second)];
      if (a !== null && b !== null && a !== b) return downward * (a - b);
      if ((a === null) !== (b === null)) return a === null ? 1 : -1;
      return downward * first.localeCompare(second);
    });
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", downward < 0 ? "descending" : "ascending");
    body.append(...groups.flat());
  }
  for (const table of document.querySelectorAll("table")) {
    if (table.tBodies[0].rows.length < 3) continue;
    for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
      if (!head.textContent) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(head, column));
      head.append(button);
    }
  }
})();
