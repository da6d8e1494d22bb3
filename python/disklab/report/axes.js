'use strict';
// Axes of every page of ours: to scale or logarithmic, and said so, with round ticks.
const ROUND = [1, 2, 5], LEAST_TICKS = 3;

// Three digits or so, as the command line has them.
const shown = (number) => (number >= 100 ? Math.round(number).toLocaleString('en') : String(Number(number.toPrecision(3))));

// The axis of these values: its ends, its ticks, and where a value stands from 0 to 1.
// `log`: logarithmic; `zero`: begins at zero; `end`: ends there, whatever the values are.
function axisOf(values, {log = false, zero = true, end = null, most = 6} = {}) {
  const able = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  const last = Math.max(...able, end ?? (able.length ? -Infinity : 1)), first = able.length ? Math.min(...able) : last;
  return log ? logarithmic(first, Math.max(last, first), most) : linear(zero ? Math.min(0, first) : first, last, end, most);
}

function linear(low, last, end, most) {
  const span = Math.max(last - low, Number.EPSILON), unit = 10 ** Math.floor(Math.log10(span / most));
  const step = [...ROUND, 10].map((by) => by * unit).find((by) => span / by <= most);
  const from = Math.floor(low / step), high = end ?? Math.ceil(last / step - 1e-9) * step;
  const ticks = [];
  for (let index = from; index * step <= high * (1 + 1e-9) && ticks.length <= most + 1; index += 1) ticks.push(Number((index * step).toPrecision(12)));
  const start = from * step;
  return {log: false, low: start, high, ticks, at: (value) => (value - start) / Math.max(high - start, Number.EPSILON)};
}

function logarithmic(first, last, most) {
  const low = first / 1.15, high = last * 1.15, powers = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) powers.push(power);
  const among = (steps) => powers.flatMap((power) => steps.map((step) => Number((step * 10 ** power).toPrecision(6)))).filter((value) => low <= value && value <= high);
  const dense = [[1], [1, 3], ROUND, [1, 1.5, 2, 3, 5, 7]].map(among), near = linear(low, high, null, most).ticks.filter((value) => low <= value && value <= high);
  const fitting = dense.find((list) => list.length >= LEAST_TICKS) ?? near;
  const stride = Math.ceil(fitting.length / most);
  const at = (value) => Math.log(value / low) / Math.log(high / low);
  return {log: true, low, high, ticks: fitting.filter((_, index) => index % stride === 0), at};
}

// Numbers that lie further apart than this are not read on an axis to scale.
const isWide = (values) => Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > 12;
