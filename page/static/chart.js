// Line charts in SVG. Lines are told apart by their pattern and by a label at their end, not by colour alone.

import { drawn, element, number, power } from "./dom.js";

const DASHES = ["", "7 4", "2 3", "10 3 2 3", "4 2", "1 5", "12 4", "6 2 2 2 2 2"];
const TOP = 12;
const BOTTOM = 36;
const NARROW = 480; // pixels, below which the names of lines stand under the chart and not beside it
const NARROW_HEIGHT = 220;
const FEW = 60; // points, below which each of them is marked: a line through one of them could not be seen

// `logged`: values are logarithms already; `limit`: a line across; `lost`: from where on the first line has no value;
// `from`: the round with which the axis begins; `marked`: points of lines that have few are marked.
export function chart(target, { series, log, alt, below, limit, lost, empty, logged, from = 0, marked = false }) {
  const width = Math.max(target.clientWidth, 240);
  const narrow = width < NARROW;
  target.classList.toggle("narrow", narrow);
  target.classList.remove("nothing"); // its height is that of a chart
  const height = narrow ? NARROW_HEIGHT : Math.max(target.clientHeight, 160);
  const [left, right] = narrow ? [42, 10] : [52, 116];
  const shown = series.filter((one) => one.points.some((point) => visible(point[1], log)));
  target.classList.toggle("nothing", !shown.length);
  if (!shown.length) {
    const zero = series.some((one) => one.points.some((point) => point[1] === 0));
    target.replaceChildren(element("p", { class: "quiet" }, zero ? "Exactly 0 throughout: an axis of powers has no place for it." : empty));
    return;
  }
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": alt });
  const scale = scales(shown, { log, limit, width, height, left, right, from });
  svg.append(...axes(scale, { log, below, logged }));
  const ends = [];
  shown.forEach((one, index) => {
    const look = { class: one.main ? "series main" : "series", "stroke-dasharray": one.main ? null : DASHES[(index % (DASHES.length - 1)) + 1] };
    svg.append(drawn("path", { ...look, d: path(one.points, scale, log) }));
    if (marked && one.points.length < FEW) svg.append(...dots(one, scale, log));
    const end = one.points.findLast((point) => visible(point[1], log));
    ends.push({ y: scale.y(end[1]), x: scale.x(end[0]), text: one.name, main: one.main, look });
  });
  if (limit) {
    const y = scale.y(limit.value);
    svg.append(drawn("path", { class: "limit", d: `M${left} ${y}H${width - right}` }));
    svg.append(drawn("text", { class: "limit-label", x: left + 6, y: y - 5 }, limit.name));
  }
  if (lost && lost.at < scale.last) {
    const x = scale.x(lost.at);
    svg.append(drawn("path", { class: "limit", d: `M${x} ${TOP}V${height - BOTTOM}` }));
    svg.append(drawn("text", { class: "limit-label", x: x + 6, y: height - BOTTOM - 8 }, lost.name));
  }
  if (!narrow) svg.append(...labels(ends, width - right, height));
  target.replaceChildren(svg, ...(narrow ? [names(ends)] : []));
}

// The line itself stands before its name: its pattern says which it is.
function names(ends) {
  const sample = (look) => drawn("svg", { viewBox: "0 0 34 10", "aria-hidden": "true" }, drawn("path", { ...look, d: "M1 5H33" }));
  return element("ul", { class: "names" }, ...ends.map((end) => element("li", { class: end.main ? "main" : null }, sample(end.look), end.text)));
}

function visible(value, log) {
  return value !== null && value !== undefined && Number.isFinite(value) && (!log || value > 0); // an exact 0 is a hole
}

const FLOOR = 1e-32; // far below what float64 tells apart: whatever is less is drawn there
const lifted = (value, log) => (log ? Math.log10(Math.max(value, FLOOR)) : value);

function scales(series, { log, limit, width, height, left, right, from }) {
  let [low, high, last] = [Infinity, -Infinity, from];
  for (const one of series) {
    for (const [k, value] of one.points) {
      last = Math.max(last, k);
      if (!visible(value, log)) continue;
      low = Math.min(low, lifted(value, log));
      high = Math.max(high, lifted(value, log));
    }
  }
  if (last === from) last = from + 1;
  if (limit) {
    low = Math.min(low, lifted(limit.value, log));
    high = Math.max(high, lifted(limit.value, log));
  }
  if (log) [low, high] = [Math.floor(low), Math.ceil(high)];
  if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
  const x = (k) => left + ((k - from) / (last - from)) * (width - left - right);
  const y = (value) => TOP + ((high - lifted(value, log)) / (high - low)) * (height - TOP - BOTTOM);
  return { x, y, low, high, from, last, height, left, end: width - right };
}

function axes(scale, { log, below, logged }) {
  const made = [];
  for (const [tick, label] of ticks(scale, log || logged)) {
    const y = scale.y(log ? 10 ** tick : tick);
    made.push(drawn("path", { class: "grid", d: `M${scale.left} ${y}H${scale.end}` }));
    made.push(drawn("text", { x: scale.left - 8, y: y + 4, "text-anchor": "end" }, label));
  }
  const bottom = scale.height - BOTTOM;
  made.push(drawn("path", { class: "axis", d: `M${scale.left} ${bottom}H${scale.end}` }));
  const stepX = niceStep(scale.last - scale.from);
  const decimals = Math.max(0, -Math.floor(Math.log10(stepX) + 1e-9));
  for (let k = Math.ceil(scale.from / stepX) * stepX; k <= scale.last + 1e-9; k += stepX) {
    made.push(drawn("text", { x: scale.x(k), y: bottom + 17, "text-anchor": "middle" }, stepX < 1 ? k.toFixed(decimals) : String(Math.round(k))));
  }
  made.push(drawn("text", { x: (scale.left + scale.end) / 2, y: bottom + 33, "text-anchor": "middle" }, below));
  return made;
}

// Where the axis is marked, and with what: powers of ten; over less than two of them 1, 2 and 5 as well.
function ticks({ low, high }, logarithmic) {
  const made = [];
  if (logarithmic && high - low < 2) {
    for (let whole = Math.floor(low); whole <= high; whole += 1) {
      for (const digit of [1, 2, 5]) {
        const tick = whole + Math.log10(digit);
        if (tick >= low - 1e-9 && tick <= high + 1e-9) made.push([tick, number(digit * 10 ** whole)]);
      }
    }
    if (made.length > 1) return made;
    made.length = 0;
  }
  const step = logarithmic && high - low >= 2 ? Math.max(1, Math.ceil((high - low) / 5)) : niceStep(high - low);
  for (let tick = Math.ceil(low / step) * step; tick <= high + 1e-9; tick += step) {
    made.push([tick, logarithmic ? (Number.isInteger(tick) ? power(tick) : number(10 ** tick)) : number(tick)]);
  }
  return made;
}

function niceStep(range) {
  const rough = range / 5;
  const unit = 10 ** Math.floor(Math.log10(rough || 1));
  return unit * [1, 2, 5, 10].find((one) => one * unit >= rough);
}

function path(points, scale, log) {
  let made = "";
  let pen = "M";
  for (const [k, value] of points) {
    if (!visible(value, log)) {
      pen = "M";
      continue;
    }
    made += `${pen}${scale.x(k).toFixed(1)} ${scale.y(value).toFixed(1)}`;
    pen = "L";
  }
  return made;
}

function dots(one, scale, log) {
  const seen = one.points.filter((point) => visible(point[1], log));
  return seen.map(([k, value]) => drawn("circle", { class: one.main ? "dot main" : "dot", cx: scale.x(k).toFixed(1), cy: scale.y(value).toFixed(1), r: 2.2 }));
}

// Labels at the ends of lines, moved apart where they would overlap.
function labels(ends, right, height) {
  const sorted = ends.toSorted((one, other) => one.y - other.y);
  let above = TOP - 8;
  for (const end of sorted) {
    end.at = Math.max(end.y, above + 14);
    above = end.at;
  }
  const over = Math.max(above - (height - BOTTOM), 0);
  return sorted.map((end) =>
    drawn("text", { class: end.main ? "label main" : "label", x: right + 8, y: end.at - over + 4 }, end.text),
  );
}
