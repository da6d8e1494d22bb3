// Judges the options again whenever objective or prices are edited. No library, nothing loaded.
const told = JSON.parse(document.getElementById("advice").textContent);
const asked = {
  bounds: told.bounds.map((one) => one.slice()), rate: told.rate_per_s,
  room: told.head_room_ratio, budget: told.budget,
};
const prices = new Map();
for (const one of told.options) {
  prices.set(one.vm, one.vm_usd);
  if (!one.local) prices.set(one.disks, one.disks_usd);
}
let order = { by: "rank", up: true }, unfolded = false;

const byId = (id) => document.getElementById(id);
const money = (usd) => Math.round(usd).toLocaleString("en-US");
const short = (n) => (n >= 100 ? money(n) : String(Number(n.toPrecision(2))));
function make(name, words, attributes = {}) {
  const svg = ["svg", "circle", "line", "path", "text", "title"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (words !== undefined && words !== null) made.textContent = words;
  return made;
}

function price(one) {
  return one.other_usd + one.nodes * (prices.get(one.vm) + (one.local ? 0 : prices.get(one.disks)));
}
function latency(one, bound) {
  const found = one.latency_ms[bound[0]] || one.latency_ms.all;
  return found[bound[1]] || null;
}
// The word of an option, and why; as `disklab advise` judges, by what was simulated.
function judge(one) {
  const needed = asked.rate * (1 + asked.room), most = told.rate_per_s * (1 + (one.head_room_ratio || 0));
  if (one.lossy) return ["missed", "one lost VM loses its data, of which there is no other copy"];
  if (asked.budget && price(one) > asked.budget) return ["missed", "dearer than the budget"];
  if (one.overloaded) {
    if (needed < 0.97 * one.ops_per_s) return ["cannot tell", `simulated at ${money(told.raised_per_s)}/s, where it fell behind`];
    return ["cannot sustain", `carries ${money(one.ops_per_s)}/s`];
  }
  if (!one.raised && needed > most * 1.0001) return ["missed", `its fullest limit lets ${money(most)}/s through`];
  let word = "met", why = "";
  const figures = [one.latency_ms].concat(one.raised_ms && asked.room ? [one.raised_ms] : []);
  for (const bound of asked.bounds) for (const some of figures) {
    const found = (some[bound[0]] || some.all)[bound[1]];
    if (!found) continue;
    const cliff = found[2] > told.cliff_ratio * found[1];
    const name = `${bound[0]} ${bound[1]} ${short(found[1])} ms${cliff ? ", at a cliff" : ""}`;
    if (found[0] > bound[2]) return ["missed", name];
    if (found[2] > bound[2] && word === "met") [word, why] = ["cannot tell", cliff ? name : `${name} (up to ${short(found[2])})`];
  }
  if (one.other.some((what) => !/p\d|mean|rate|budget/.test(what))) return ["missed", one.why];
  if (word === "met" && needed > told.raised_per_s * 1.0001) return ["cannot tell", `its latency was simulated at ${money(told.raised_per_s)}/s`];
  if (word === "met" && !one.full) return ["cannot tell", "a first look only"];
  return [word, why];
}
const ranks = ["met", "cannot tell", "missed", "cannot sustain"];
function ranked() {
  const all = told.options.map((one) => {
    const [word, why] = edited() ? judge(one) : [one.outcome, one.why];
    const first = asked.bounds[0] || ["all", "p99", 0];
    const found = one.overloaded ? null : latency(one, first);
    return { one, word, why, usd: price(one), ms: found ? found[1] : null };
  });
  // As long as nothing is edited, the command's own order and words stand.
  if (edited()) {
    all.sort((a, b) => ranks.indexOf(a.word) - ranks.indexOf(b.word) || a.usd - b.usd);
    // What is plainer stands before what costs hardly less.
    const cheapest = all[0];
    const plain = all.findIndex((row) => row.word === "met" && row.usd <= cheapest.usd * told.plainer_ratio
      && (row.one.plainer_than || []).includes(cheapest.one.hardware));
    if (plain > 0 && cheapest.word === "met") all.unshift(...all.splice(plain, 1));
  }
  all.forEach((row, n) => { row.rank = n + 1; });
  return all;
}
function axisName() {
  const first = asked.bounds[0] || ["all", "p99"];
  return `${first[0]} ${first[1]}`;
}

function edited() {
  return asked.rate !== told.rate_per_s || asked.room !== told.head_room_ratio || asked.budget !== told.budget
    || asked.bounds.some((one, n) => one[2] !== told.bounds[n][2]) || told.options.some((one) => prices.get(one.vm) !== one.vm_usd || (!one.local && prices.get(one.disks) !== one.disks_usd));
}
function sayAnswer(rows) {
  // What the command said holds for what it was asked.
  document.querySelectorAll("#answer .why").forEach((line) => { line.hidden = edited(); });
  if (!edited()) { byId("says").textContent = told.says; return; }
  const best = rows.find((row) => row.word === "met");
  const perhaps = rows.find((row) => row.word === "cannot tell");
  byId("says").textContent = best
    ? `Buy ${best.one.name}: ${money(best.usd)} USD a month, ${axisName()} ${best.ms === null ? "unknown" : short(best.ms) + " ms"}.`
    : perhaps
      ? `Cannot tell; the cheapest that may do it is ${perhaps.one.name}, ${money(perhaps.usd)} USD a month: ${perhaps.why}.`
      : "Nothing of what was simulated qualifies.";
}

const DEAR = 3, FIRST = 5;
function drawScatter(rows) {
  // What costs three times the answer nobody would buy.
  const drawn = rows.filter((row) => row.ms !== null && row.ms > 0);
  const shown = drawn.filter((row) => row.usd <= DEAR * Math.min(...drawn.slice(0, 1).map((one) => one.usd)));
  const place = byId("scatter");
  place.replaceChildren();
  if (!shown.length) { place.append(make("p", "No option has a latency.")); return; }
  const wide = Math.max(320, Math.min(1150, place.clientWidth || 700)), high = wide < 500 ? 260 : 340;
  const left = 52, right = 18, top = 26, bottom = 46;
  const bound = asked.bounds[0] ? asked.bounds[0][2] : null;
  const times = shown.map((row) => row.ms).concat(bound ? [bound] : []);
  const across = axisOf(shown.map((row) => row.usd).concat(asked.budget || []), { most: wide < 500 ? 3 : 6 }), up = axisOf(times, { log: true });
  const x = (usd) => left + across.at(usd) * (wide - left - right);
  const y = (ms) => high - bottom - up.at(ms) * (high - top - bottom);
  const svg = make("svg", null, { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `Price a month against ${axisName()}` });
  svg.append(make("text", `${axisName()}, ms (logarithmic)`, { x: 4, y: 14 }));
  svg.append(make("text", "USD a month", { x: wide - right, y: high - 6, "text-anchor": "end" }));
  for (const ms of up.ticks) {
    svg.append(make("line", null, { class: "axis", x1: left, x2: wide - right, y1: y(ms), y2: y(ms) }));
    svg.append(make("text", short(ms), { x: left - 6, y: y(ms) + 4, "text-anchor": "end" }));
  }
  for (const usd of across.ticks) svg.append(make("text", money(usd), { x: x(usd), y: high - bottom + 18, "text-anchor": usd ? "middle" : "start" }));
  const line = (x1, y1, x2, y2, why) => {
    const drawn = make("line", null, { class: "asked", x1, x2, y1, y2 });
    drawn.append(make("title", why));
    svg.append(drawn);
  };
  if (bound) line(left, y(bound), wide - right, y(bound), `asked for: ${bound} ms`);
  if (asked.budget) line(x(asked.budget), top, x(asked.budget), high - bottom, `budget: ${money(asked.budget)} USD`);
  let least = Infinity;
  const front = shown.slice().sort((a, b) => a.usd - b.usd || a.ms - b.ms).filter((row) => (row.ms < least ? ((least = row.ms), true) : false));
  svg.append(make("path", null, { class: "front", d: front.map((row, n) => `${n ? "L" : "M"}${x(row.usd).toFixed(1)} ${y(row.ms).toFixed(1)}`).join("") }));
  const labels = [];
  for (const row of shown.slice().reverse()) {
    const dot = make("circle", null, { class: row.word === "met" ? "met" : "other", cx: x(row.usd), cy: y(row.ms), r: row.one.full ? 6 : 3.5 });
    if (!row.one.full) dot.classList.add("quick");
    dot.append(make("title", `${row.rank}. ${row.one.name}: ${money(row.usd)} USD, ${short(row.ms)} ms (${row.word})`));
    svg.append(dot);
    const at = [Math.min(x(row.usd) + 9, wide - 16), y(row.ms) - 6];
    if (!row.one.full || labels.some(([left, top]) => Math.abs(left - at[0]) < 16 && Math.abs(top - at[1]) < 13)) continue;
    labels.push(at);
    svg.append(make("text", String(row.rank), { class: "rank", x: at[0], y: at[1] }));
  }
  place.append(svg, make("p", "Large points: finalists at full fidelity, by their rank; small rings: simulated quick. The line joins what is cheaper than everything as fast (Pareto front); dashed: what is asked for." + (drawn.length > shown.length ? ` ${drawn.length - shown.length} that cost over three times the answer are left out.` : ""), { class: "quiet" }));
}

const columns = [
  ["rank", "rank", (row) => row.rank, (row) => String(row.rank)],
  ["option", "option", (row) => row.one.name, (row) => row.one.name],
  ["usd", "USD/month", (row) => row.usd, (row) => money(row.usd)],
  ["ms", "latency", (row) => (row.ms === null ? Infinity : row.ms), (row) => (row.ms === null ? "" : `${short(row.ms)} ms`)],
  ["ops", "ops/s", (row) => row.one.ops_per_s, (row) => money(row.one.ops_per_s)],
  ["binds", "bound by", (row) => row.one.binds, (row) => row.one.binds],
  ["word", "asked for", (row) => ranks.indexOf(row.word), (row) => (row.why ? `${row.word}: ${row.why}` : row.word)],
];
function drawTable(rows) {
  const sorting = columns.find((one) => one[0] === order.by);
  const sorted = rows.slice().sort((a, b) => {
    const [first, second] = [sorting[2](a), sorting[2](b)];
    return (first < second ? -1 : first > second ? 1 : a.rank - b.rank) * (order.up ? 1 : -1);
  });
  const table = make("table"), head = make("thead"), line = make("tr");
  for (const [key, words] of columns) {
    const cell = make("th", null, { scope: "col", "data-of": key });
    if (key === order.by) cell.setAttribute("aria-sort", order.up ? "ascending" : "descending");
    const button = make("button", key === "ms" ? axisName() : words, { type: "button", "data-by": key });
    button.addEventListener("click", () => {
      order = { by: key, up: order.by === key ? !order.up : true };
      drawTable(rows);
      byId("ranked").querySelector(`button[data-by=${key}]`).focus();
    });
    cell.append(button);
    line.append(cell);
  }
  head.append(line);
  const body = make("tbody");
  sorted.forEach((row, n) => {
    const made = make("tr", null, n < FIRST || unfolded ? {} : { hidden: "" });
    columns.forEach(([key, , , say]) => {
      const number = ["usd", "ms", "ops"].includes(key);
      const cell = make(key === "rank" ? "th" : "td", say(row), { "data-of": key, ...(number ? { class: "number" } : {}) });
      if (key === "word") cell.className = row.word === "met" ? "met-word" : row.word === "missed" ? "missed-word" : "";
      made.append(cell);
    });
    body.append(made);
  });
  table.append(make("caption", "Options", { class: "unseen" }), head, body);
  byId("ranked").replaceChildren(table);
  if (sorted.length > FIRST) {
    const fold = make("button", unfolded ? `First ${FIRST} only` : `All ${sorted.length} options`, { type: "button", id: "fold" });
    fold.addEventListener("click", () => { unfolded = !unfolded; drawTable(rows); byId("fold").focus(); });
    byId("ranked").append(fold);
  }
}

function drawFinalists(rows) {
  const open = new Set([...document.querySelectorAll("#finalists details[open]")].map((one) => one.dataset.name));
  const parts = rows.filter((row) => row.one.snippets).map((row, n) => {
    const made = make("details", null, { class: "finalist", "data-name": row.one.name });
    made.open = n === 0 || open.has(row.one.name);
    made.append(make("summary", `${row.rank}. ${row.one.name}`));
    made.append(make("p", `${money(row.usd)} USD a month; ${row.word}${row.why ? ": " + row.why : ""}. A stopped or lost VM loses ${row.one.lost}.`));
    const stretches = Object.entries(row.one.tail).filter(([, ms]) => ms > 0).sort((a, b) => b[1] - a[1]);
    const sum = stretches.reduce((all, [, ms]) => all + ms, 0);
    if (sum) {
      const bar = make("div", null, { class: "bar", role: "img", "aria-label": "What p99 consists of" });
      stretches.forEach(([name, ms], n) => {
        const piece = make("span", null, { title: `${told.stretches[name] || name}: ${short(ms)} ms` });
        piece.style.width = `${(ms / sum) * 100}%`;
        piece.style.background = `var(--series${n % told.series})`;
        bar.append(piece);
      });
      made.append(bar, make("p", "p99: " + stretches.map(([name, ms]) => `${told.stretches[name] || name} ${short(ms)} ms`).join(", "), { class: "quiet" }));
    }
    for (const line of row.one.settings) made.append(make("p", line));
    for (const [name, words] of Object.entries(row.one.snippets)) {
      const key = `${row.one.name} ${name}`, box = make("details", null, { "data-name": key });
      if (open.has(key)) box.open = true;
      box.append(make("summary", name), make("pre", words, { tabindex: "0" }));
      made.append(box);
    }
    return made;
  });
  byId("finalists").replaceChildren(...parts);
}

function draw() {
  const rows = ranked();
  sayAnswer(rows);
  drawScatter(rows);
  drawTable(rows);
  drawFinalists(rows);
}
function field(words, value, set, parent, least = 0) {
  const label = make("label", words), input = make("input", null, { type: "number", min: least, step: "any", value: value === null ? "" : value });
  input.addEventListener("input", () => {
    const typed = input.value === "" ? null : Number(input.value);
    if (typed !== null && !(typed >= least)) return;
    set(typed);
    draw();
  });
  label.append(input);
  parent.append(label);
}
const form = byId("asked");
form.addEventListener("submit", (event) => event.preventDefault());
asked.bounds.forEach((bound) => field(`${bound[0]} ${bound[1]}, ms`, bound[2], (ms) => { if (ms) bound[2] = ms; }, form));
field("operations a second", asked.rate, (rate) => { if (rate) asked.rate = rate; }, form);
field("head-room, %", Math.round(asked.room * 100), (share) => { asked.room = (share || 0) / 100; }, form);
field("budget, USD a month", asked.budget, (usd) => { asked.budget = usd; }, form);
const more = make("details"), list = make("div", null, { class: "prices" });
more.append(make("summary", "Prices: USD a month of each VM, and of the disks of each"), list);
for (const [name, usd] of [...prices].sort()) field(name, usd, (given) => { prices.set(name, given || 0); }, list);
form.append(more);
draw();
let width = document.documentElement.clientWidth;
addEventListener("resize", () => {
  if (document.documentElement.clientWidth === width) return;
  width = document.documentElement.clientWidth;
  drawScatter(ranked());
});
document.body.dataset.drawn = "yes";
