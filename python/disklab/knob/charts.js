// Charts as SVG, each with its table. Nothing here knows what is shown; axes.js says where a value stands.
const SVG = 'http://www.w3.org/2000/svg';

function made(name, attributes = {}, ...content) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== false && value !== null) element.setAttribute(key, value === true ? '' : value);
  element.append(...content);
  return element;
}

function drawn(name, attributes = {}, ...content) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...content);
  return element;
}

function tableOf(caption, headings, rows) {
  const head = made('tr', {}, ...headings.map((text) => made('th', {scope: 'col'}, text)));
  const body = rows.map(([first, ...rest]) => made('tr', {}, made('th', {scope: 'row'}, first), ...rest.map((text) => made('td', {}, text))));
  return made('table', {}, made('caption', {}, caption), made('thead', {}, head), made('tbody', {}, ...body));
}

// A chart with its caption and its figures; readers without eyes get the table, which is made when it is opened.
function figureOf(chart, caption, tableMade) {
  chart.setAttribute('role', 'img');
  chart.setAttribute('aria-label', caption);
  const room = made('div', {class: 'wide', tabindex: 0, role: 'region', 'aria-label': caption}), details = made('details', {}, made('summary', {}, 'Figures'), room);
  details.addEventListener('toggle', () => { if (!room.firstChild) room.append(tableMade()); });
  return made('figure', {}, chart, made('figcaption', {}, caption), details);
}

// Puts a figure where another one may stand, whose table stays open.
function putFigure(id, figure, ...before) {
  const place = document.getElementById(id), open = place.querySelector('details')?.open ?? false;
  figure.querySelector('details').open = open;
  place.replaceChildren(...before, figure);
}

const keyOf = (entries) => made('ul', {class: 'key'}, ...entries.map(([css, text]) => made('li', {},
  drawn('svg', {viewBox: '0 0 10 10', 'aria-hidden': 'true'}, drawn('rect', {width: 10, height: 10, class: css})), text)));

// As wide as its place is, so that its letters keep their size on a phone.
const widthOf = (id) => Math.max(300, Math.min(860, Math.round(document.getElementById(id).clientWidth) || 860));

// Bars of parts that add up. bars: [{label, parts: [number]}]
function barsOf(bars, unit, wide) {
  const left = 56, right = 80, each = 26, sum = (parts) => parts.reduce((all, part) => all + part, 0);
  const most = Math.max(...bars.map(({parts}) => sum(parts)), 1e-9), svg = drawn('svg', {viewBox: `0 0 ${wide} ${bars.length * each + 4}`});
  bars.forEach(({label, parts}, row) => {
    let at = left;
    svg.append(drawn('text', {x: left - 8, y: row * each + 17, 'text-anchor': 'end', class: 'ink'}, label));
    parts.forEach((part, index) => {
      const length = part / most * (wide - left - right);
      if (length > 0) svg.append(drawn('rect', {x: at, y: row * each + 3, width: length, height: each - 7, class: `p${index}`}));
      at += length;
    });
    svg.append(drawn('text', {x: at + 6, y: row * each + 17}, `${shown(sum(parts))} ${unit}`));
  });
  return svg;
}

// Lines over a knob. lines: [{css, points: [[x, y]], published: [[x, y]]}]; x: `names` evenly spaced, or numbers, to scale or logarithmic.
// `now`: where the knob stands.
function linesOf(given, {xs, unit, across, wide, log = false, names = null, now = null, end = null, high = 200}) {
  // A cell in which nothing was answered has no figure, and no point.
  const drawable = (points = []) => points.filter(([, figure]) => Number.isFinite(figure));
  const lines = given.map((line) => ({...line, points: drawable(line.points), published: drawable(line.published)}));
  const left = 56, right = 20, top = 24, bottom = 40, ys = lines.flatMap(({points, published}) => [...points, ...published]).map(([, y]) => y);
  const vertical = axisOf(ys, {end, most: 5});
  const axis = names ? {log: false, ticks: xs, at: (value) => (xs.length < 2 ? 0.5 : xs.indexOf(value) / (xs.length - 1))} : axisOf(xs, {log, zero: !log, most: wide < 500 ? 5 : 9, end: log ? null : Math.max(...xs)});
  const x = (value) => left + (wide - left - right) * axis.at(value), y = (value) => high - (high - top) * vertical.at(value);
  const svg = drawn('svg', {viewBox: `0 0 ${wide} ${high + bottom}`}), write = (text, place) => svg.append(drawn('text', place, text));
  for (const value of vertical.ticks) {
    svg.append(drawn('line', {x1: left, x2: wide - right, y1: y(value), y2: y(value), class: 'grid'}));
    write(shown(value), {x: left - 6, y: y(value) + 4, 'text-anchor': 'end', class: 'tick'});
  }
  for (const value of axis.ticks) write(names ? String(value) : shown(value), {x: x(value), y: high + 17, 'text-anchor': 'middle', class: 'tick'});
  write(unit, {x: 4, y: 12});
  write(`${across}${axis.log ? ' (logarithmic)' : ''}`, {x: wide - right, y: high + 35, 'text-anchor': 'end'});
  if (now !== null) svg.append(drawn('line', {x1: x(now), x2: x(now), y1: top, y2: high, class: 'now'}));
  for (const {css, points, published} of lines) {
    svg.append(drawn('polyline', {class: `line ${css}`, points: points.map(([at, value]) => `${x(at)},${y(value)}`).join(' ')}));
    for (const [at, value] of points) svg.append(drawn('circle', {class: `dot ${css}`, cx: x(at), cy: y(value), r: now === at ? 6 : 3}));
    for (const [at, value] of published) svg.append(drawn('rect', {class: `published ${css}`, x: x(at) - 5, y: y(value) - 5, width: 10, height: 10}));
  }
  return svg;
}
