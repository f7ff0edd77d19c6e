// What is shown of a state: each function fills one panel from one document.

import { chart } from "./chart.js";
import { byId, bytes, drawn, element, fromLog10, number, say, sayTypeset, table, typeset } from "./dom.js";

const STATUS = {
  waiting: "waiting for the run to begin",
  running: "under way",
  silent: "no news: the run may have died",
  finished: "finished",
  stopped: "stopped by its budget",
  diverged: "diverged",
  interrupted: "interrupted",
  failed: "failed",
};
const NODE = { ok: "on its way", late: "late", gone: "gone, restarting", absent: "not there yet", finished: "done", ended: "ended" };
export const ACTIVE = ["waiting", "running", "silent"];
const ALARMING = ["diverged", "interrupted", "failed", "silent"];
const RESUMED = ["interrupted", "failed", "silent"];

export function lead(state) {
  const { progress, overheard, network } = state;
  const kicker = byId("kicker");
  say(kicker, `${STATUS[progress?.status ?? "waiting"] ?? progress.status}${standing(overheard)}`);
  const alarming = overheard?.broken === true || ALARMING.includes(progress?.status);
  kicker.className = `kicker${alarming ? " broken" : overheard?.broken === false ? " hidden-well" : ""}`;
  sayTypeset(byId("verdict"), headline(state));
  below(byId("go-on"), goOn(state));
  below(byId("strength"), strength(state));
  if (network) {
    const hosted = network.groups.length ? `${network.groups.length} nodes over gRPC, ${network.tls ? "TLS" : "plaintext"}` : "in one process";
    say(byId("description"), `${network.algorithm} on the ${network.problem} problem: ${network.agents} agents, ${network.links.length} links, ${hosted}.`);
    say(byId("name"), network.name);
    document.title = `${network.name} · DPP²`;
  }
  figures(state);
}

const standing = (overheard) =>
  overheard?.broken === true ? " · overheard" : overheard?.broken === false ? (overheard.ciphertext.length ? " · ciphertext" : " · not recovered") : "";

function below(target, text) {
  target.hidden = !text;
  sayTypeset(target, text);
}

function headline(state) {
  const { progress, overheard, network } = state;
  if (progress?.status === "diverged") return `The run has diverged. ${found(state)}`.trim();
  if (progress?.status === "silent") return `No news since ${clock(progress.at)} (round ${progress.round}).`;
  if (progress?.status === "interrupted") return `Interrupted after round ${progress.round}.`;
  if (overheard?.verdict) return found(state);
  if (!progress || progress.status === "waiting") return "Waiting for the run to begin.";
  const over = !ACTIVE.includes(progress.status);
  if (over && network?.audited) return network.audited;
  if (network?.groups.length && !network.tap) return over ? "The run is over; nobody has listened." : "The run is under way; nobody listens.";
  return over ? "The run is over." : "The run is under way; the eavesdropper has just begun.";
}

// The verdict, in the past where nobody is at work any more.
function found({ progress, overheard }) {
  if (overheard?.unscored && !ACTIVE.includes(progress?.status)) return "The eavesdropper was at work; without telemetry nobody here can say how close it came.";
  return overheard?.verdict ?? "";
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

// Of a run that has not come to its end: how to go on, and what was found so far.
function goOn(state) {
  const { progress, network } = state;
  if (!RESUMED.includes(progress?.status)) return "";
  const told = progress.status === "failed" ? "" : found(state);
  const command = network?.resume?.startsWith("dpp2 ") ? `\`${network.resume}\`` : (network?.resume ?? "");
  const more = progress.charged > progress.round ? `Up to ${progress.charged} rounds are charged.` : "";
  return [command && `${command[0].toUpperCase()}${command.slice(1)} goes on from there.`, more, told].filter(Boolean).join(" ");
}

function strength({ mode, progress, overheard, network }) {
  if (network?.audited && !ACTIVE.includes(progress?.status)) return overheard?.verdict ? `\`dpp2 audit\` has looked at this run: ${network.audited}` : "That is what `dpp2 audit` has found.";
  if (!overheard?.quick || overheard.ciphertext.length) return "";
  const where = mode === "playground" ? ", as always in the playground" : ACTIVE.includes(progress?.status) ? ", as always while a run is under way" : " so far";
  return `By the quick attacks alone${where}: \`dpp2 audit\` has stronger ones.`;
}

function figures(state) {
  const { progress, network, account } = state;
  if (!progress) return;
  const last = measured(state).at(-1);
  const rows = [["round", network ? `${progress.round} of ${network.rounds}` : String(progress.round)]];
  if (progress.charged > progress.round) rows.push(["rounds charged", String(progress.charged)]);
  if (progress.rate) rows.push(["rounds a second", number(progress.rate)]);
  rows.push([network?.groups.length && progress.status === "interrupted" ? "sent, at least" : "sent", bytes(progress.bytes)]);
  if (last) rows.push(["gap", number(last[1])]);
  if (account && !account.reason) rows.push(["ε, worst-off agent", worst(account, accounted(progress))]);
  if (state.paper_epsilon && !state.paper_epsilon.startsWith("unsupported")) rows.push(["ε, as the paper has it", shortened(state.paper_epsilon)]);
  for (const [name, value] of Object.entries({ ...state.overheard?.report, ...progress.report })) rows.push([name.replaceAll("_", " "), number(value)]);
  if (state.seconds) rows.push(["computed in", `${state.seconds.toFixed(2)} s`]);
  byId("figures").replaceChildren(
    ...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

// Rounds that ε is due for: nodes that were stopped may have sent more than all of them have completed.
const accounted = (progress) => Math.max(progress?.round ?? 0, progress?.charged ?? 0);

// What the run tells of itself; of nodes on this machine, what they have put on record.
const measured = ({ progress, measured: found }) => (progress?.points?.length ? progress.points : (found?.points ?? []));

function shortened(text) {
  const value = Number(text);
  return Number.isFinite(value) ? number(value) : text;
}

// log10 ε of an agent after k rounds: the account has it at some rounds, and between two of them the later one holds.
export function spentAfter(account, agent, k) {
  if (account.uncovered !== null && k > account.uncovered) return null;
  if (k <= 0) return -Infinity;
  const row = account.agents[Math.min(agent, account.agents.length - 1)];
  const index = account.rounds.findIndex((count) => count >= k);
  return row[index < 0 ? row.length - 1 : index];
}

function worst(account, k) {
  if (k <= 0) return "0";
  if (k > account.rounds.at(-1)) return "…"; // it is being computed: the run has got more rounds
  const spent = account.agents.map((_, agent) => spentAfter(account, agent, k));
  return spent.some((one) => one === null) ? "∞" : fromLog10(Math.max(...spent));
}

export function legend(network) {
  const entries = [["● agent", ""], ...(network.groups.length ? [["■", "late"], ["⊗", "gone or restarting"]] : [])];
  const tapped = network.groups.length ? network.tap !== "" : network.transport !== "grpc";
  entries.push(["—", tapped ? (network.groups.length ? `tapped by a ${network.tap}` : "recorded as an eavesdropper hears it") : "not tapped"]);
  if (network.tls) entries.push(["- -", "TLS"]);
  if (network.tap && network.groups.some((group) => group.length > 1)) entries.push(["···", "inside one node, never on a wire"]);
  byId("legend").replaceChildren(
    ...entries.map(([sign, words]) => element("li", {}, element("b", {}, sign), words ? ` ${words}` : "")),
  );
  byId("graph").setAttribute("aria-label", `Graph of ${network.agents} agents and ${network.links.length} links; the table below lists the agents`);
}

const touched = matchMedia("(hover: none)");

export function hovered(found, state, graph) {
  const target = byId("hover");
  if (!found || !state.network) {
    say(target, state.network ? `${touched.matches ? "Tap" : "Point at"} an agent or a link.` : "It is drawn once the run has begun.");
    return;
  }
  say(target, found.agent !== undefined ? aboutAgent(found.agent, state, graph) : aboutLink(found.link, state, graph));
}

function aboutAgent(agent, state, graph) {
  const node = graph.node(agent);
  const links = graph.degree[agent] === 1 ? "1 link" : `${graph.degree[agent]} links`;
  if (!node) return `Agent ${agent}: ${links}, round ${state.progress?.round ?? 0}.`;
  const refused = node.refused ? `, ${node.refused} frames or calls turned away` : "";
  return `Agent ${agent} on node ${node.node}: ${NODE[node.state] ?? node.state}, round ${node.round}, ${links}, ${bytes(node.bytes)} sent by the node${refused}.`;
}

function aboutLink([i, j], state, graph) {
  const { network, progress } = state;
  const onWire = network.groups.length ? network.links.filter(([a, b]) => graph.host.get(a) !== graph.host.get(b)).length : network.links.length;
  const inside = network.groups.length && graph.host.get(i) === graph.host.get(j);
  if (inside) return `Link ${i}–${j}: inside one node, never on a wire.`;
  const carried = onWire && progress ? `about ${bytes(progress.bytes / onWire)} so far` : "nothing yet";
  return `Link ${i}–${j}: ${carried}, ${network.tls ? "TLS" : "plaintext"}, ${graph.tapped(i, j) ? "tapped" : "not tapped"}.`;
}

export function agents(state, graph) {
  const { network, progress } = state;
  if (!network || !byId("agents").closest("details").open) return;
  const rows = Array.from({ length: network.agents }, (_, agent) => {
    const node = graph.node(agent);
    return [agent, node?.node ?? "–", node?.round ?? progress?.round ?? 0, NODE[node?.state] ?? "–", graph.degree[agent], node ? bytes(node.bytes) : "–"];
  });
  const head = [{ name: "agent" }, { name: "node" }, { name: "round", number: true }, { name: "state" }, { name: "links", number: true }, { name: "node has sent", number: true }];
  table(byId("agents"), "Agents, where they are hosted, and how far they have come", head, rows);
}

export function convergence(state) {
  const points = measured(state);
  say(byId("convergence-title"), !points.length && unseen(state) ? "Progress" : "Convergence");
  if (!points.length && state.progress?.pace?.length > 1) {
    pace(state);
    return;
  }
  const series = [
    { name: "gap", main: true, points: points.map((point) => [point[0], point[1]]) },
    { name: "consensus", points: points.map((point) => [point[0], point[2]]) },
    { name: "stationarity", points: points.map((point) => [point[0], point[3]]) },
  ];
  const empty = unseen(state) ?? "Nothing has been measured yet.";
  chart(byId("convergence"), { series, log: true, below: "round", alt: "Gap, consensus and stationarity against the round", empty });
  const words = "Gap = consensus (how far the agents disagree) + stationarity (how far their gradients are from a sum of zero). It is computed from private values, and outside ε.";
  say(byId("convergence-note"), points.length ? words : "");
  byId("convergence-table").closest("details").hidden = !points.length;
  if (byId("convergence-table").closest("details").open) {
    const head = ["round", "gap", "consensus", "stationarity"].map((name) => ({ name, number: true }));
    table(byId("convergence-table"), "Some rounds", head, thinned(points, 60).map((point) => point.map((value, index) => (index ? number(value) : value))));
  }
}

const unseen = ({ network }) => (network && !network.telemetry ? "No telemetry: nobody here may see a gap." : null);

// Where nobody sees a gap: what is known, which is how fast it goes.
function pace(state) {
  const series = [{ name: "rounds", main: true, points: state.progress.pace }];
  chart(byId("convergence"), { series, below: "seconds", alt: "Rounds against seconds", empty: "" });
  say(byId("convergence-note"), `${unseen(state) ?? "Nothing has been measured yet."} What is known: how many rounds were run, and when.`);
  byId("convergence-table").closest("details").hidden = true;
}

function thinned(rows, most) {
  const step = Math.ceil(rows.length / most) || 1;
  return rows.filter((_, index) => index % step === 0 || index === rows.length - 1);
}

export function overheard(state, quantity) {
  const found = state.overheard;
  const body = byId("overheard-body");
  const leaks = found?.ciphertext ?? [];
  byId("leaks-title").hidden = !leaks.length;
  byId("leaks").replaceChildren(...leaks.map((leak) => element("li", {}, ...typeset(leak))));
  body.hidden = !found || found.ciphertext.length > 0;
  if (!found) {
    sayTypeset(byId("overheard-source"), silence(state));
    return;
  }
  const span = found.ciphertext.length ? "" : `: rounds ${found.first} to ${found.last}, ${found.channels} channels`;
  const untapped = state.network?.groups.length && !state.network.tap && !found.source.includes("tap") ? " Nobody tapped this run: this is what an eavesdropper on every link would have had." : "";
  sayTypeset(byId("overheard-source"), `Heard from ${found.source}${span}.${untapped}${found.unscored ? ` Its ${found.unscored}.`.replace("Its errors", "Errors") : ""}`);
  if (body.hidden) return;
  errors(found, quantity);
  attacks(found);
}

function silence({ network, progress }) {
  if (!progress || progress.status === "waiting") return "Nothing has been said yet.";
  if (network?.groups.length && !network.tap && RESUMED.includes(progress.status)) return "Nobody has listened: this run has no tap (--tap). What it sent is attacked once it has been resumed and has finished, if it is on record.";
  if (network?.groups.length && !network.tap) return "Nobody listens: this run has no tap (--tap). What it sent is attacked when it is over, if it is on record.";
  if (!ACTIVE.includes(progress.status)) return "What was overheard is being attacked: that takes some seconds, if there is anything.";
  return `Nothing has been overheard yet: ${network?.groups.length ? "messages are decoded" : "checkpoints are read"} every few seconds.${network?.tls ? " Under TLS it will be ciphertext." : ""}`;
}

function errors(found, quantity) {
  const best = found.closest[quantity];
  const series = found.attacks.map((attack) => ({ name: attack.name, main: attack.name === best, points: attack[quantity] }));
  const empty = found.unscored ? "No telemetry: nobody here can score the attacks." : "No attack that applies claims anything about this.";
  chart(byId("errors"), { series, log: true, below: "round", alt: `Relative error of every attack on ${quantity} against the round`, empty, from: found.first, marked: true });
}

const styled = (text) => element("span", {}, ...typeset(text));

function attacks(found) {
  if (!byId("attacks").closest("details").open) return;
  const head = [{ name: "attack" }, { name: "error of x", number: true }, { name: "error of ∇f", number: true }, { name: "what it does" }];
  const rows = found.attacks.map((attack) => [attack.name, number(attack.x_now), number(attack.gradient_now), styled(attack.summary)]);
  rows.push(...found.skipped.map((one) => [one.name, "–", "–", styled(`not run: ${one.reason}`)]));
  table(byId("attacks"), "Medians over the last tenth of the rounds", head, rows);
}

export function choices(state, quantity) {
  const found = state.overheard;
  if (!found) return;
  const names = Object.keys(found.guesses).filter((name) => found.guesses[name][quantity].length);
  const best = found.closest[quantity];
  const strongest = found.attacks.findLast((attack) => attack.listens && names.includes(attack.name))?.name; // they come weakest first
  options(byId("attack"), names.map((name) => [name, name === best ? `${name} (closest)` : name]), best ?? strongest);
  const rows = found.guesses[byId("attack").value]?.[quantity] ?? [];
  const known = Math.max(0, ...names.map((name) => found.guesses[name][quantity].length));
  const first = Math.max(rows.findIndex(claims), 0); // of some agents too little may be on a wire
  options(byId("agent"), Array.from({ length: known }, (_, agent) => [String(agent), `agent ${agent}`]), String(first));
}

const claims = (row) => row.some((value) => value !== null);

function options(select, entries, first) {
  const same = select.options.length === entries.length && entries.every(([value, text], index) => select.options[index].value === value && select.options[index].text === text);
  if (same) return;
  const before = select.dataset.chosen ?? first ?? entries[0]?.[0];
  select.replaceChildren(...entries.map(([value, text]) => element("option", { value }, text)));
  if (entries.some(([value]) => value === before)) select.value = before;
}

export function coordinates(state, quantity) {
  const found = state.overheard;
  const claimed = found?.guesses[byId("attack").value];
  const guess = claimed?.[quantity];
  const agent = Number(byId("agent").value || 0);
  if (!guess?.[agent] || !claims(guess[agent])) {
    byId("coordinates").replaceChildren(element("caption", {}, `This attack claims nothing about agent ${agent}.`));
    return;
  }
  const truth = found.truths[claimed.round]?.[quantity]?.[agent];
  const symbol = quantity === "x" ? "x" : "∇f";
  const values = [...guess[agent], ...(truth ?? [])].filter((value) => value !== null);
  const spread = truth ? [Math.min(...truth), Math.max(...truth)] : [Math.min(...values), Math.max(...values)];
  const head = [{ name: "no." }, ...(truth ? [{ name: symbol, number: true }] : []), { name: `${symbol}̂, recovered`, number: true }, ...(truth ? [{ name: "off by", number: true }] : []), { name: truth ? "○ true   × recovered" : "× recovered" }];
  const rows = guess[agent].map((value, index) => [
    index,
    ...(truth ? [number(truth[index])] : []),
    number(value),
    ...(truth ? [off(value, truth[index])] : []),
    rail(value, truth?.[index], spread),
  ]);
  const which = claimed.round === found.named ? ", the one that the headline names" : claimed.round < found.last ? ", the last one of which it claims something" : "";
  table(byId("coordinates"), `Agent ${agent} in round ${claimed.round}${which}${truth ? "" : found.unscored ? "; the truth is not for this page" : "; the truth is not on record yet"}`, head, rows);
}

// Relative to the true number. Six digits arrive here: what is the same in all of them differs by less than that.
function off(value, truth) {
  if (value === null || (truth === 0 && value !== 0)) return "–";
  const share = value === truth ? 0 : Math.abs(value / truth - 1);
  if (share >= 10) return `${number(share)}\u00a0×`;
  return share < 1e-5 ? "< 0.001\u00a0%" : `${number(100 * share)}\u00a0%`;
}

const phone = matchMedia("(max-width: 30rem)");

function rail(value, truth, [low, high]) {
  const length = phone.matches ? 72 : 200;
  const pad = (high - low) * 0.35 || 1;
  const at = (one) => 8 + Math.max(0, Math.min(1, (one - low + pad) / (high - low + 2 * pad))) * (length - 16);
  const svg = drawn("svg", { viewBox: `0 0 ${length} 20`, "aria-hidden": "true" }, drawn("path", { class: "rail", d: `M4 10H${length - 4}` }));
  if (truth !== undefined && truth !== null) svg.append(drawn("circle", { class: "true", cx: at(truth), cy: 10, r: 6 }));
  if (value !== null) {
    const x = at(value);
    svg.append(drawn("path", { class: "guess", d: `M${x - 4} 6L${x + 4} 14M${x + 4} 6L${x - 4} 14` }));
  }
  return svg;
}

export function account(state) {
  const { account: found, progress } = state;
  byId("outside").replaceChildren(...(found?.outside ?? []).map((note) => element("li", {}, ...typeset(note))));
  byId("outside").closest("section").hidden = !found?.outside.length;
  const k = accounted(progress);
  if (!found || found.reason) {
    chart(byId("account"), { series: [], alt: "ε", empty: found ? "No ε can be given." : "Not computed yet.", below: "" });
    sayTypeset(byId("account-note"), found?.reason ? `No ε: ${found.reason}.` : "");
    return;
  }
  const until = found.rounds.filter((count) => count <= k).length;
  const covered = (count) => found.uncovered === null || count <= found.uncovered;
  const cut = (row, all = false) => found.rounds.slice(0, until).map((count, index) => [count, all || covered(count) ? row[index] : null]);
  const last = found.agents.map((row) => row[Math.max(until - 1, 0)] ?? -Infinity);
  const most = found.agents[last.indexOf(Math.max(...last))];
  const least = found.agents[last.indexOf(Math.min(...last))];
  const series = [{ name: "worst-off agent", main: true, points: cut(most) }];
  if (found.agents.length > 1) series.push({ name: "best-off agent", points: cut(least) });
  if (found.paper.some((value) => value !== null)) series.push({ name: "the paper's claim", points: cut(found.paper, true) });
  const lost = found.uncovered !== null && k > found.uncovered ? { at: found.uncovered, name: "ε = ∞ from here on" } : null;
  const limit = found.budget ? { name: `budget ${number(found.budget)}`, value: Math.log10(found.budget) } : null;
  chart(byId("account"), { series, logged: true, limit, lost, below: "rounds", alt: "ε against the number of rounds", empty: k ? "ε = ∞ from the first round on." : "No round has been run yet." });
  sayTypeset(byId("account-note"), accountNote(found, k));
  spentTable(found, k);
}

function accountNote(found, k) {
  const budget = found.budget ? ` of a budget of ${number(found.budget)}` : "; no budget was set";
  const lost = found.uncovered !== null && k > found.uncovered ? ` From round ${found.uncovered} on float64 does not carry the noise: ε = ∞.` : "";
  return `After ${k} rounds the worst-off agent has spent ε = ${worst(found, k)}${budget}, in this run.${lost}`;
}

function spentTable(found, k) {
  if (!byId("spent").closest("details").open) return;
  const rows = found.agents.map((_, agent) => [found.agents.length > 1 ? agent : "every agent", fromLog10(spentAfter(found, agent, k)), found.budget ? number(found.budget) : "–"]);
  table(byId("spent"), `After ${k} rounds of this run`, [{ name: "agent" }, { name: "ε spent", number: true }, { name: "budget", number: true }], rows);
}

let toldEvents = "";

export function events(state) {
  const found = state.progress?.events ?? [];
  byId("events").closest("section").hidden = state.mode === "playground" && !found.length;
  const key = JSON.stringify([found, state.progress?.status]);
  if (key === toldEvents) return;
  toldEvents = key;
  const shown = found.map((event) =>
    element("li", {}, element("span", {}, element("span", { class: "what" }, event.what), element("br"), element("span", { class: "when" }, `round ${event.round}`)), element("span", {}, ...typeset(event.text))),
  );
  byId("events").replaceChildren(...(shown.length ? shown : [element("li", { class: "nothing" }, element("span", {}, ACTIVE.includes(state.progress?.status ?? "waiting") ? "Nothing yet." : "Nothing out of the ordinary."))]));
}
