// Three ideas with one slider each, simulated as everything else on the page.
const scene = {number: null, value: 0, points: [], lasts: Infinity, round: 0};
const WINDOW_S = 0.25;  // of a course that is looked at

// The job where the slider stands.
const TURNED = {
  depth: ({choice}, value) => [{...choice, depth: value}, {}],
  seconds: ({choice}, value) => [choice, {runtime_ns: WINDOW_S * 1e9, warm_up_ns: (value - WINDOW_S) * 1e9}],
  hours: ({choice}, value) => [{...choice, credits: Math.max(0, 100 * (1 - value / scene.lasts))}, {}],
};

function sceneJob(shownScene, value) {
  const [choice, fio] = TURNED[shownScene.turn](shownScene, value), job = jobOf(state.offer, {...USUAL, ...choice});
  Object.assign(job.device.fio, shownScene.fio, fio);
  // Late in what is measured: there the queue is as it stays.
  return {fidelity: 'quick', ...job, journal: {from_ns: Math.round(job.device.fio.runtime_ns * 0.6), most: MOST_IOS}};
}

const sceneNow = () => state.offer.scenes[scene.number];
const stops = ({slider: {least, most, step}}) => Array.from({length: Math.round((most - least) / step) + 1}, (_, index) => least + index * step);

async function simulateScene(value, lane) {
  const {ops_per_s: rate, latency_ms: {mean}, credits, journal = []} = await lane.ask(sceneJob(sceneNow(), value));
  return {value, rate, ms: mean, credits, journal, hits: journal.filter(isCached).length / Math.max(journal.length, 1)};
}

// Opens a scene; what belongs to one that was left is not drawn.
async function openScene(number) {
  Object.assign(scene, {number, value: state.offer.scenes[number].slider.start, points: [], lasts: Infinity, round: scene.round + 1});
  const own = sceneNow(), {label, least, most, step} = own.slider, slider = get('slide');
  replay.sides = {};
  replay.fixed = own.clock;
  get('scene-name').textContent = own.name;
  get('slide-name').textContent = label;
  Object.assign(slider, {min: least, max: most, step, value: scene.value});
  state.lanes.a.drop();
  state.refining.drop();
  const round = scene.round, begun = await simulateScene(least, state.lanes.a);
  if (round !== scene.round) return;
  const limited = begun.credits.filter(({lasts_s}) => lasts_s !== null).map(({lasts_s}) => lasts_s / 3600);
  scene.lasts = Math.min(Infinity, ...limited);
  if (scene.value === least) showPoint(begun); else await turnScene(scene.value);
  for (const value of stops(own)) {
    if (scene.points.some((point) => point.value === value)) continue;
    const point = value === least ? begun : await simulateScene(value, state.refining);
    if (round !== scene.round) return;
    keepPoint(point);
    showCourse();
  }
  document.body.dataset.scene = number;
}

const keepPoint = (point) => { scene.points = [...scene.points.filter(({value}) => value !== point.value), point].sort((x, y) => x.value - y.value); };

// As far as the slider was turned; a turn that another one overtook is not shown.
async function turnScene(value) {
  const begun = performance.now(), round = scene.round, own = state.lanes.a;
  scene.value = value;
  own.drop();
  const point = await simulateScene(value, own);
  if (round !== scene.round || value !== scene.value) return;
  showPoint(point);
  told(begun);
}

function showPoint(point) {
  keepPoint(point);
  showPicture('scene', point.journal);
  showCourse();
  get('scene-rate').textContent = shown(point.rate);
  get('scene-ms').textContent = shown(point.ms);
  get('slide-value').textContent = shown(point.value);
  get('slide').setAttribute('aria-valuetext', `${shown(point.value)}: ${shown(point.rate)} requests a second, each takes ${shown(point.ms)} ms`);
}

function showCourse() {
  const {points} = scene, own = sceneNow(), xs = stops(own), wide = widthOf('scene-chart');
  const charts = [['requests a second', 'rate'], ['milliseconds that each takes', 'ms']].map(([unit, key]) => linesOf(
    [{css: 'a', points: points.map((point) => [point.value, point[key]])}], {xs, unit, across: own.slider.label.toLowerCase(), wide: Math.min(wide, 430), now: scene.value, high: 130}));
  const rows = points.map(({value, rate, ms}) => [shown(value), shown(rate), shown(ms)]);
  putFigure('scene-chart', figureOf(made('div', {class: 'pair'}, ...charts), `${own.slider.label}: requests a second, and how long each takes.`,
    () => tableOf('As simulated', [own.slider.label, 'requests a second', 'ms each'], rows)));
  const words = wordsOf(own, points);
  get('scene-before').replaceChildren(...own.before.map((text) => made('span', {}, `${words(text)} `)));
  get('scene-after').textContent = points.length === xs.length ? words(own.after) : '';
}

// The figures in the sentences of a scene.
function wordsOf(own, points) {
  const rates = points.map(({rate}) => rate), most = Math.max(...rates), first = points[0], last = points.at(-1);
  const figures = {
    iops: own.choice.iops, base: volumeOf(state.offer, {...USUAL, ...own.choice}).bought[1], first: Math.round(first?.rate / 10) * 10, gain: last?.rate / first?.rate, slower: last?.ms / first?.ms, lasts: scene.lasts,
    full: points.find(({rate}) => rate > 0.95 * most)?.value,
  };
  return (text) => text.replace(/\{(\w+)\}/g, (_, name) => (Number.isFinite(figures[name]) ? shown(Number(figures[name].toPrecision(2))) : '…'));
}
