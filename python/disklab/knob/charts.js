// Charts as SVG, each with its table. Nothing here knows what is shown.
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

// Bars of parts that add up. bars: [{label, parts: [number]}]
function barsOf(bars, unit) {
  const left = 70, width = 720, each = 26, most = Math.max(...bars.map(({parts}) => parts.reduce((sum, part) => sum + part, 0)), 1e-9);
  const svg = drawn('svg', {viewBox: `0 0 ${left + width + 90} ${bars.length * each + 4}`});
  bars.forEach(({label, parts}, row) => {
    let at = left;
    svg.append(drawn('text', {x: left - 8, y: row * each + 17, 'text-anchor': 'end', class: 'ink'}, label));
    parts.forEach((part, index) => {
      const wide = part / most * width;
      if (wide > 0) svg.append(drawn('rect', {x: at, y: row * each + 3, width: wide, height: each - 7, class: `p${index}`}));
      at += wide;
    });
    svg.append(drawn('text', {x: at + 6, y: row * each + 17}, `${shown(parts.reduce((sum, part) => sum + part, 0))} ${unit}`));
  });
  return svg;
}

// Lines over a knob. lines: [{css, points: [[x, y]], published: [[x, y]]}]; `places`: x as they are named, evenly spaced.
function linesOf(given, places, unit) {
  // A cell in which nothing was answered has no figure, and no point.
  const drawable = (points = []) => points.filter(([, figure]) => Number.isFinite(figure));
  const lines = given.map((line) => ({...line, points: drawable(line.points), published: drawable(line.published)}));
  const left = 64, right = 20, top = 10, wide = 860, high = 250, bottom = 40;
  const ys = lines.flatMap(({points, published}) => [...points, ...published]).map(([, y]) => y);
  const most = Math.max(...ys, 1e-9) * 1.05, svg = drawn('svg', {viewBox: `0 0 ${wide} ${high + bottom}`});
  const x = (place) => left + (wide - left - right) * (places.length < 2 ? 0.5 : place / (places.length - 1));
  const y = (value) => high - (high - top) * value / most;
  for (let step = 0; step <= 4; step += 1) {
    const value = most * step / 4;
    svg.append(drawn('line', {x1: left, x2: wide - right, y1: y(value), y2: y(value), class: 'grid'}),
      drawn('text', {x: left - 6, y: y(value) + 4, 'text-anchor': 'end'}, shown(value)));
  }
  places.forEach((name, place) => svg.append(drawn('text', {x: x(place), y: high + 18, 'text-anchor': 'middle'}, String(name))));
  svg.append(drawn('text', {x: left, y: high + 36}, unit));
  for (const {css, points, published} of lines) {
    svg.append(drawn('polyline', {class: `line ${css}`, points: points.map(([at, value]) => `${x(at)},${y(value)}`).join(' ')}));
    for (const [at, value] of points) svg.append(drawn('circle', {class: `dot ${css}`, cx: x(at), cy: y(value), r: 4}));
    for (const [at, value] of published) svg.append(drawn('rect', {class: `published ${css}`, x: x(at) - 5, y: y(value) - 5, width: 10, height: 10}));
  }
  return svg;
}

// Three digits or so, as the command line has them.
const shown = (number) => (number >= 100 ? Math.round(number).toLocaleString('en') : String(Number(number.toPrecision(3))));
