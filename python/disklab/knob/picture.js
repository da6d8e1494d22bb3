// Operations on their way through client, processor, queue, limits and disk, in slow motion.
const STAGES = [
  ['client, network', ['unsent', 'client', 'network']], ['processor', ['cpu', 'pause', 'overhead', 'retry']], ['queue', ['slots', 'held']],
  ['limits', ['limits']], ['disk or cache', ['disk']],
];
const MOST_DOTS = 24, MEDIAN_MS = 2500;
const calm = matchMedia('(prefers-reduced-motion: reduce)');
const picture = {sides: {}, playing: !calm.matches, last: 0};

// Milliseconds in each stage at p50, p95 and p99; of a device, whose answer does not split its tail: the wait for its limits, and the rest.
function splitsOf(report) {
  return ['p50', 'p95', 'p99'].map((percentile) => {
    const tail = report.tail?.[percentile];
    if (tail) return STAGES.map(([, parts]) => parts.reduce((sum, part) => sum + (tail[part] ?? 0), 0));
    const whole = report.latency_ms[percentile], waited = Math.min(whole, report.bottleneck.wait_ms_per_operation);
    return [0, 0, 0, waited, whole - waited];
  });
}

function showPicture(side, report) {
  if (report === null) { delete picture.sides[side]; return redrawn(); }
  const splits = splitsOf(report), count = Math.max(1, Math.min(MOST_DOTS, Math.round(report.mean_in_flight)));
  const longest = splits[0].indexOf(Math.max(...splits[0]));
  picture.sides[side] = {splits, longest, dots: Array.from({length: count}, (_, index) => ({begun: false, at: index / count, split: splits[0]}))};
  return redrawn();
}

function redrawn() {
  const place = document.getElementById('picture'), names = Object.keys(picture.sides);
  const slow = clockOf();
  document.getElementById('clock').textContent = names.length ? `1 ms here takes ${shown(slow / 1000)} s. Three operations of four take the median's times, the others the 95th and 99th percentile's.` : '';
  const svg = drawn('svg', {viewBox: `0 0 900 ${names.length * 110 + 10}`});
  names.forEach((side, row) => {
    const {splits, longest, dots} = picture.sides[side], y = row * 110;
    STAGES.forEach(([name], index) => {
      svg.append(drawn('rect', {x: index * 178 + 8, y: y + 24, width: 166, height: 74, rx: 6, class: `stage${index === longest ? ' binds' : ''}`}),
        drawn('text', {x: index * 178 + 12, y: y + 18, class: 'ink'}, `${index ? '' : `${side.toUpperCase()}: `}${name} ${shown(splits[0][index])} ms`));
    });
    dots.forEach((dot, index) => {
      dot.circle = drawn('circle', {r: 6, class: `dot ${side}`, cy: y + 34 + (index % 6) * 11});
      svg.append(dot.circle);
      move(dot, picture.sides[side], 0);
    });
  });
  const rows = names.flatMap((side) => picture.sides[side].splits.map((split, index) => [`${side.toUpperCase()} ${['p50', 'p95', 'p99'][index]}`, ...split.map((ms) => `${shown(ms)} ms`)]));
  place.replaceChildren(figureOf(svg, 'Dots are operations under way; the marked stage takes most of a median operation.',
    tableOf('Time in each stage', ['operation', ...STAGES.map(([name]) => name)], rows)));
}

function clockOf() {
  const medians = Object.values(picture.sides).map(({splits}) => splits[0].reduce((sum, ms) => sum + ms, 0));
  return MEDIAN_MS / Math.max(Math.min(...medians), 0.01);
}

// Moves a dot by so many milliseconds of the system's time, and puts it where that share of its way is.
function move(dot, {splits}, ms) {
  const whole = dot.split.reduce((sum, part) => sum + part, 0) || 1;
  dot.at += ms / whole;
  if (dot.at >= 1) {
    const chance = Math.random();
    dot.at %= 1;
    dot.split = splits[chance < 0.75 ? 0 : chance < 0.97 ? 1 : 2];
  }
  let left = dot.at * dot.split.reduce((sum, part) => sum + part, 0), stage = 0;
  while (stage < STAGES.length - 1 && left >= dot.split[stage]) left -= dot.split[stage++];
  const share = dot.split[stage] ? Math.min(1, left / dot.split[stage]) : 0;
  dot.circle.setAttribute('cx', stage * 178 + 18 + share * 146);
}

function frame(now) {
  const passed = Math.min(100, now - picture.last) / clockOf();
  picture.last = now;
  if (picture.playing) for (const side of Object.values(picture.sides)) for (const dot of side.dots) move(dot, side, passed);
  requestAnimationFrame(frame);
}

function startPicture() {
  const button = document.getElementById('play');
  const tell = () => { button.textContent = picture.playing ? 'Pause' : 'Play'; };
  button.addEventListener('click', () => { picture.playing = !picture.playing; tell(); });
  tell();
  requestAnimationFrame(frame);
}
