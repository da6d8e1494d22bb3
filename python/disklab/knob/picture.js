// Single I/Os as the simulator had them, in slow motion: what each waits for, and what serves it.
const MOST_IOS = 240, LISTED = 25, MEDIAN_S = 1.5;
const LEFT = 14, HEAD = 22, ROOM = 'room in the host cache';
const calm = matchMedia('(prefers-reduced-motion: reduce)');
// `fixed`: milliseconds of the system's in a second of the reader's; null: by the median.
const replay = {sides: {}, playing: !calm.matches, at: 0, last: 0, fixed: null, wide: 900, gate: 440};

// The same job as a sketch, which tells I/Os from its middle on one by one.
const journalJob = (job, {elapsed_s}) => ({...fidelity(job, 'sketch'), journal: {from_ns: Math.round(elapsed_s * 5e8), most: MOST_IOS}});

const middle = (numbers) => [...numbers].sort((x, y) => x - y)[numbers.length >> 1] ?? 0;
const isCached = ({route}) => route === 'hit' || route === 'write-back';
const serverOf = (io) => (isCached(io) ? 'host cache' : 'disks');
const waitsAt = (io, ms) => io.waits.find(([, from, to]) => from <= ms && ms < to)?.[0] ?? ROOM;

// `journal`: of the simulator's answer; null: it has not come, or there is none.
function showPicture(side, journal) {
  if (replay.sides[side]?.journal === journal) return;
  const ios = (journal ?? []).map((io) => ({
    ...io, arrived: io.arrived_ns / 1e6, passed: io.passed_ns / 1e6, ended: io.ended_ns / 1e6,
    waits: io.waits.map(([limit, from, to]) => [limit, from / 1e6, to / 1e6]),
  }));
  // It begins when the first of them ends: those that came before the list are over then.
  const first = Math.min(...ios.map(({ended}) => ended)), last = ios.at(-1)?.arrived ?? 0;
  const [from, to] = first < last ? [first, last] : [ios[0]?.arrived ?? 0, Math.max(...ios.map(({ended}) => ended))];
  const names = ios.flatMap((io) => [...io.waits.map(([limit]) => limit), ...(io.waits.length || io.passed === io.arrived ? [] : [ROOM])]);
  replay.sides[side] = {journal, ios, from, length: Math.max(to - from, 1e-6), limits: [...new Set(names)], servers: [...new Set(ios.map(serverOf))].sort()};
  redrawn();
}

const shownSides = () => Object.entries(replay.sides).filter(([, {ios}]) => ios.length);
const longest = () => Math.max(...shownSides().map(([, {length}]) => length), 1e-6);
// Milliseconds of the system's in a second of the reader's.
const clockOf = () => replay.fixed ?? Math.max(Math.min(...shownSides().map(([, {ios}]) => middle(ios.map(({arrived, ended}) => ended - arrived)))), 1e-3) / MEDIAN_S;

// One canvas: elements that move sixty times a second would leave the browser heaps of what they were.
const canvas = made('canvas');
// A scene has one picture, which is large; two of them share the room of a phone.
const sizes = () => (document.body.dataset.view === 'scene' ? {row: innerWidth < 640 ? 56 : 84, dot: 7, each: 16} : {row: innerWidth < 640 ? 30 : 38, dot: 5, each: 11});
const headOf = (side) => (side === 'scene' ? '' : `${side.toUpperCase()}: `);

function redrawn() {
  const sides = shownSides(), style = getComputedStyle(document.documentElement);
  replay.high = 0;
  for (const [, own] of sides) {
    own.y = replay.high;
    replay.high += HEAD + rowsHigh(own) + 10;
  }
  replay.inks = Object.fromEntries(['ink', 'muted', 'line', 'paper', 'series1', 'series2'].map((name) => [name, style.getPropertyValue(`--${name}`)]));
  document.getElementById('clock').textContent = sides.length
    ? `1 ms takes ${shown(1 / clockOf())} s here. Each dot is a request${sides[0][0] === 'scene' ? '' : " to the first node's disks"} as it was simulated; hollow ones write.` : '';
  document.getElementById('ios').replaceChildren(...Object.entries(replay.sides).map(([side, own]) => made('li', {}, `${headOf(side)}${summaryOf(own)}`)));
  if (sides.length) {
    putFigure('picture', figureOf(canvas, 'I/Os waiting for limits, left, and served by the host cache or by disks, right.', () => tableOf(
      `The first ${LISTED} of each, in milliseconds`, ['I/O', 'came', 'waited for', 'waited', 'served by', 'served'], sides.flatMap(([side, own]) => rowsOf(side, own)))));
  } else {
    document.getElementById('picture').replaceChildren();
  }
  drawAll();
}

const rowsHigh = ({limits, servers}) => sizes().row * Math.max(1, servers.length, limits.length);

function summaryOf({journal, ios, length}) {
  if (journal === null) return 'its I/Os come when the knobs rest.';
  if (!ios.length) return 'no I/O reached a disk: memory had everything.';
  const group = (list, name) => (list.length ? `${list.length} by ${name} (${shown(middle(list.map(({passed, ended}) => ended - passed)))} ms in the median)` : '');
  const served = [group(ios.filter(isCached), 'the host cache'), group(ios.filter((io) => !isCached(io)), 'disks')].filter(Boolean).join(', ');
  const waits = new Map();
  for (const io of ios) if (io.passed > io.arrived) { const limit = io.waits.at(-1)?.[0] ?? ROOM; waits.set(limit, [...(waits.get(limit) ?? []), io]); }
  const held = [...waits].map(([limit, list]) => `${list.length} waited for ${limit} (${shown(middle(list.map(({arrived, passed}) => passed - arrived)))} ms in the median)`);
  return `${ios.length} I/Os within ${shown(length)} ms: served ${served}; ${held.join(', ') || 'none waited for a limit'}.`;
}

function rowsOf(side, {ios}) {
  return ios.slice(0, LISTED).map((io, index) => [
    `${headOf(side)}${index + 1}: ${io.route}, ${shown(io.bytes / 1024)} KiB, ${io.disk}`, shown(io.arrived - ios[0].arrived),
    [...new Set(io.waits.map(([limit]) => limit))].join(', ') || (io.passed > io.arrived ? ROOM : '-'), shown(io.passed - io.arrived),
    isCached(io) ? 'host cache' : io.disk, shown(io.ended - io.passed),
  ]);
}

function drawAll() {
  replay.wide = canvas.clientWidth || 900;
  replay.gate = Math.round(replay.wide * 0.52);
  const scale = devicePixelRatio, wide = Math.round(replay.wide * scale), high = Math.round(replay.high * scale);
  if (canvas.width !== wide || canvas.height !== high) { Object.assign(canvas, {width: wide, height: high}); canvas.style.height = `${replay.high}px`; }
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, replay.wide, replay.high);
  pen.font = '12px system-ui, sans-serif';
  for (const [side, own] of shownSides()) drawAt(pen, side, own, own.from + replay.at % own.length);
  const moment = document.getElementById('moment');
  moment.max = longest();
  moment.value = replay.at;
}

// Where each I/O is at a time: those that wait in a row before the gate, the others on their way to their end; null: it is not under way.
function standing({ios, limits, servers}, ms) {
  const waiting = new Map(limits.map((name) => [name, 0])), {gate, wide} = replay, {dot, each} = sizes();
  for (const io of ios) {
    io.place = null;
    if (ms < io.arrived || io.ended <= ms) continue;
    io.place = [gate + 18 + (wide - gate - 44) * (ms - io.passed) / (io.ended - io.passed), servers.indexOf(serverOf(io))];
    if (ms >= io.passed) continue;
    const limit = waitsAt(io, ms), rank = waiting.get(limit) ?? 0;
    waiting.set(limit, rank + 1);
    io.place = [Math.max(LEFT + dot, gate - 10 - dot - rank * each), limits.indexOf(limit)];
  }
  return waiting;
}

function drawAt(pen, side, own, ms) {
  const {ink, muted, line, paper, series1, series2} = replay.inks, {y, limits, ios} = own, waiting = standing(own, ms), binds = limits.length > 0;
  const {gate, wide: room} = replay, {row: high, dot} = sizes();
  const write = (text, x, row, colour) => { pen.fillStyle = colour; pen.fillText(text, x, row, x < gate ? gate - x - 12 : room - x); };
  const box = (x, wide, colour, thick) => { Object.assign(pen, {strokeStyle: colour, lineWidth: thick}); pen.strokeRect(x, y + HEAD, wide, rowsHigh(own)); };
  write(`${headOf(side)}${binds ? 'waiting for' : 'nothing waits'}`, LEFT - 6, y + 14, ink);
  write('served by', gate + 12, y + 14, ink);
  box(LEFT - 6, gate - LEFT, binds ? series2 : line, binds ? 2 : 1);
  box(gate + 6, room - gate - 8, line, 1);
  limits.forEach((name, row) => write(`${waiting.get(name)} for ${inWords(name)}`, LEFT, y + HEAD + row * high + 13, muted));
  own.servers.forEach((name, row) => write(name, gate + 12, y + HEAD + row * high + 13, muted));
  const colour = side === 'b' ? series2 : series1;
  Object.assign(pen, {strokeStyle: colour, lineWidth: 2});
  for (const {route, place} of ios) {
    if (!place) continue;
    const writes = route.startsWith('w') || route === 'destage';
    pen.fillStyle = writes ? paper : colour;
    pen.beginPath();
    pen.arc(place[0], y + HEAD + place[1] * high + (high + 14) / 2, dot, 0, 2 * Math.PI);
    pen.fill();
    if (writes) pen.stroke();
  }
}

function frame(now) {
  const passed = Math.min(100, now - replay.last) / 1000 * clockOf();
  replay.last = now;
  if (replay.playing && shownSides().length) {
    replay.at = (replay.at + passed) % longest();
    drawAll();
  }
  requestAnimationFrame(frame);
}

function startPicture() {
  addEventListener('resize', redrawn);
  const button = document.getElementById('play'), moment = document.getElementById('moment');
  const tell = () => { button.textContent = replay.playing ? 'Pause' : 'Play'; };
  button.addEventListener('click', () => { replay.playing = !replay.playing; tell(); });
  moment.addEventListener('input', () => {
    Object.assign(replay, {playing: false, at: Number(moment.value)});
    moment.setAttribute('aria-valuetext', `${shown(replay.at)} ms`);
    tell();
    drawAll();
  });
  tell();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawn);
  requestAnimationFrame(frame);
}
