// Takes documents in, from the stream of a run or from the playground, and shows them, at most once a frame.

import { Controls } from "./controls.js";
import { byId, say } from "./dom.js";
import { Graph } from "./graph.js";
import * as panels from "./panels.js";
import { follow } from "./stream.js";

const state = { network: null, progress: null, measured: null, overheard: null, account: null };
const due = new Set();
let quantity = "";

const graph = new Graph(byId("graph"), (found) => panels.hovered(found, state, graph), (agent) => choose(agent));

const SHOW = {
  lead: () => {
    panels.lead(state);
    corner();
  },
  network: () => {
    if (!state.network) return;
    byId("graph").closest("section").classList.remove("undrawn");
    graph.show(state.network);
    panels.legend(state.network);
    panels.hovered(null, state, graph);
  },
  agents: () => panels.agents(state, graph),
  convergence: () => panels.convergence(state),
  overheard: () => panels.overheard(state, chosenQuantity()),
  coordinates: () => {
    panels.choices(state, chosenQuantity());
    panels.coordinates(state, chosenQuantity());
  },
  account: () => panels.account(state),
  events: () => panels.events(state),
};
const NEEDED = {
  network: ["lead", "network", "agents", "convergence", "overheard", "coordinates"],
  progress: ["lead", "agents", "convergence", "account", "events"],
  measured: ["lead", "convergence"],
  overheard: ["lead", "overheard", "coordinates"],
  account: ["lead", "account"],
};

// What the corner says: a run that does not move is not live, however well its page is connected.
let link = "connecting …";

function corner() {
  const moving = ["waiting", "running"].includes(state.progress?.status ?? "waiting");
  say(byId("connection"), link === "live" && !moving ? "connected" : link);
}

function request(...panelsDue) {
  if (!due.size) scheduleNext();
  for (const panel of panelsDue) due.add(panel);
}

// One panel a task: a page with two thousand links must still answer to a key.
function scheduleNext() {
  setTimeout(() => {
    const [panel] = due;
    if (panel === undefined) return;
    due.delete(panel);
    SHOW[panel]();
    if (due.size) scheduleNext();
  }, 0);
}

function chosenQuantity() {
  if (quantity) return quantity;
  return state.network?.x_is_public ? "gradient" : "x";
}

function checkQuantity() {
  for (const radio of document.querySelectorAll("[name=quantity]")) radio.checked = radio.value === chosenQuantity();
}

function take(kind, document_) {
  if (kind === "state") {
    Object.assign(state, document_);
    if (state.progress) graph.state(state.progress.nodes);
    request(...Object.keys(SHOW));
  } else {
    if (kind === "progress") progress(document_);
    else state[kind] = document_;
    request(...NEEDED[kind]);
  }
  checkQuantity();
}

// Points come as they are measured; those that begin earlier than others end take their place.
function progress(found) {
  const before = (state.progress?.points ?? []).filter((point) => point[0] < found.since);
  if (state.progress && found.round !== state.progress.round) graph.talk();
  state.progress = { ...found, points: [...before, ...found.points] };
  graph.state(found.nodes);
}

function choose(agent) {
  byId("agent").dataset.chosen = String(agent);
  byId("agent").value = String(agent);
  graph.choose(agent);
  request("coordinates");
}

byId("agent").addEventListener("change", (event) => choose(Number(event.target.value)));
byId("attack").addEventListener("change", (event) => {
  event.target.dataset.chosen = event.target.value;
  request("coordinates");
});
for (const radio of document.querySelectorAll("[name=quantity]")) {
  radio.addEventListener("change", () => {
    quantity = radio.value;
    request("overheard", "coordinates");
  });
}
for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", () => request(...Object.keys(SHOW).filter((name) => name !== "network")));
let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => request("convergence", "overheard", "account"), 100);
});

async function start() {
  const answer = await fetch("/mode");
  const mode = await answer.json();
  document.body.dataset.mode = mode.mode;
  if (mode.mode === "watch") {
    follow(take, (text) => {
      link = text;
      corner();
    });
    return;
  }
  const main = document.querySelector("main");
  const show = (found) => {
    take("state", found);
    graph.talk();
    main.dataset.shown = location.hash || "#";
  };
  new Controls(mode, show, (busy) => {
    main.classList.toggle("working", busy);
    link = busy ? "computing …" : "ready";
    corner();
  });
}

start().catch(() => say(byId("connection"), "the page's server does not answer: load this page again"));
