// Small things that every panel needs. Text goes in as text, never as markup.

export const byId = (id) => document.getElementById(id);

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  fill(made, properties, children);
  return made;
}

export function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(made, attributes, children);
  return made;
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
}

export function say(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// Plain text with its symbols typeset, as the report of an audit has them: x_i, δ_dp, 10^-5, `a command`.
const MARKS = /`([^`]+)`|(?<![\w./-])(∇f|[xfMyzdqewup]|δ|λ|c|b)_(dp|max|ij|[ijwexyv0-9])(?![\w/]|\.\w)|(?<![\w.])(10|2|[xweryz]|R)\^((?:[−-]?\d+(?:\.\d+)?)|ε|K|k)(?!\w|\.\w)/gu;

export function typeset(text) {
  const made = [];
  let from = 0;
  const plain = (part) => made.push(whole(part));
  for (const found of text.matchAll(MARKS)) {
    plain(text.slice(from, found.index));
    if (found[1]) made.push(element("code", {}, found[1]));
    else if (found[2]) made.push(found[2], element("sub", {}, found[3]));
    else made.push(found[4], element("sup", {}, found[5].replace("-", "−")));
    from = found.index + found[0].length;
  }
  plain(text.slice(from));
  return made;
}

// What belongs together stays on one line: 5e-13 is 5·10⁻¹³, and neither 17 % nor --tap is broken in two.
function whole(text) {
  return text
    .replace(/(?<![\w.])(\d(?:\.\d+)?)e([-+]?)0*(\d+)(?!\w)/g, (_, digits, sign, exponent) => `${digits}·${power(Number(sign + exponent))}`)
    .replace(/(\d\.\d{5})\d{3,}/g, "$1…")
    .replace(/(\d) (?=%)/g, "$1\u00a0")
    .replace(/--(?=[a-z])/g, "-\u2060-\u2060");
}

export function sayTypeset(target, text) {
  if (target.said === text) return;
  target.said = text;
  target.replaceChildren(...typeset(text));
}

export function table(target, caption, head, rows) {
  const cell = (tag, value, index) => {
    const made = element(tag, { class: head[index].number ? "number" : null, scope: tag === "th" ? "col" : null });
    made.append(value instanceof Node ? value : String(value));
    return made;
  };
  target.replaceChildren(
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head.map((one, index) => cell("th", one.name, index)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value, index) => cell("td", value, index))))),
  );
}

const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

export function power(exponent) {
  return "10" + [...String(exponent)].map((digit) => SUPERSCRIPT[digit]).join("");
}

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000 && size < 100000) return String(Math.round(value));
  if (size >= 0.001 && size < 100000) return String(Number(value.toPrecision(3)));
  const [digits, exponent] = value.toExponential(1).split("e");
  return `${digits}·${power(Number(exponent))}`;
}

export function fromLog10(log) {
  if (log === null || log === undefined) return "∞";
  if (log > -3 && log < 5) return number(10 ** log);
  const exponent = Math.floor(log);
  return `${(10 ** (log - exponent)).toFixed(1)}·${power(exponent)}`;
}

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let value = count;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}
