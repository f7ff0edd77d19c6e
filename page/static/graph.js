// The network on a canvas: drawn once, copied for every frame, so that thousands of links cost nothing while they move.

const MARGIN = 26;
const PULSE = 700; // milliseconds that a message takes from one end of a link to the other
const MOST_PULSES = 240;
const REACH = 14; // pixels

export class Graph {
  constructor(canvas, tell, choose) {
    this.canvas = canvas;
    this.tell = tell;
    this.network = null;
    this.nodes = new Map();
    this.chosen = -1;
    this.pulses = 0;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.base = document.createElement("canvas");
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.tell(null));
    canvas.addEventListener("click", (event) => {
      const found = this.nearest(event);
      if (found?.agent !== undefined) choose(found.agent);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(network) {
    this.network = network;
    this.host = new Map(network.groups.flatMap((group) => group.map((agent) => [agent, group[0]])));
    this.degree = new Array(network.agents).fill(0);
    for (const [i, j] of network.links) {
      this.degree[i] += 1;
      this.degree[j] += 1;
    }
    this.draw();
  }

  state(nodes) {
    const before = [...this.nodes.values()].map((node) => node.state).join();
    this.nodes = new Map(nodes.map((node) => [node.node, node]));
    if (before !== nodes.map((node) => node.state).join()) this.draw();
  }

  choose(agent) {
    this.chosen = agent;
    this.draw();
  }

  node(agent) {
    return this.nodes.get(this.host?.get(agent) ?? agent);
  }

  tapped(i, j) {
    const { tap, groups, transport } = this.network;
    if (!groups.length) return transport !== "grpc";
    return tap !== "" && this.host.get(i) !== this.host.get(j);
  }

  draw() {
    if (!this.network) return;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    for (const canvas of [this.canvas, this.base]) {
      canvas.width = Math.max(width * ratio, 1);
      canvas.height = Math.max(height * ratio, 1);
    }
    this.at = spread(this.network.places, width, height);
    const context = this.base.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.colours = colours();
    this.links(context);
    this.agents(context);
    this.copy();
  }

  links(context) {
    const { links } = this.network;
    const dense = links.length > 400;
    for (const tapped of [false, true]) {
      context.beginPath();
      for (const [i, j] of links) {
        if (this.tapped(i, j) !== tapped) continue;
        context.moveTo(...this.at[i]);
        context.lineTo(...this.at[j]);
      }
      context.strokeStyle = tapped ? this.colours.accent : this.colours.quiet;
      context.globalAlpha = dense ? 0.18 : tapped ? 0.5 : 0.65;
      context.lineWidth = dense ? 0.7 : 1.1;
      context.setLineDash(!tapped && this.network.tap ? [1, 4] : this.network.tls ? [4, 3] : []);
      context.stroke();
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  agents(context) {
    const count = this.network.agents;
    const radius = count <= 30 ? 11 : count <= 80 ? 8 : 4.5;
    context.font = `600 ${radius > 9 ? 10 : 8}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let agent = 0; agent < count; agent += 1) this.agent(context, agent, radius);
  }

  agent(context, agent, radius) {
    const [x, y] = this.at[agent];
    const state = this.node(agent)?.state ?? "ok";
    const away = state === "gone" || state === "absent";
    context.beginPath();
    if (state === "late") context.rect(x - radius, y - radius, 2 * radius, 2 * radius);
    else context.arc(x, y, radius, 0, 7);
    context.fillStyle = away ? this.colours.card : state === "late" ? this.colours.alarm : this.colours.ink;
    context.fill();
    context.lineWidth = agent === this.chosen ? 4 : 1.5;
    context.strokeStyle = agent === this.chosen ? this.colours.accent : away ? this.colours.alarm : this.colours.card;
    context.stroke();
    if (away) this.cross(context, x, y, radius * 0.55);
    else if (radius > 7) {
      context.fillStyle = this.colours.card;
      context.fillText(String(agent), x, y + 0.5);
    }
  }

  cross(context, x, y, size) {
    context.beginPath();
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x + size, y - size);
    context.lineTo(x - size, y + size);
    context.stroke();
  }

  // Messages on their way, while rounds go on.
  talk() {
    if (this.still.matches || !this.network || document.hidden) return;
    this.until = performance.now() + PULSE;
    if (!this.moving) {
      this.moving = true;
      requestAnimationFrame((now) => this.frame(now));
    }
  }

  frame(now) {
    this.copy();
    const { links } = this.network;
    const context = this.canvas.getContext("2d");
    const every = Math.ceil(links.length / MOST_PULSES);
    const share = 1 - Math.max(this.until - now, 0) / PULSE;
    context.fillStyle = this.colours.accent;
    context.beginPath(); // one path for all of them: hundreds of small ones cost a browser without a graphics card much
    for (let index = 0; index < links.length; index += every) {
      const [[x, y], [u, v]] = [this.at[links[index][0]], this.at[links[index][1]]];
      for (const part of [share, 1 - share]) {
        const [px, py] = [x + (u - x) * part, y + (v - y) * part];
        context.moveTo(px + 1.8, py);
        context.arc(px, py, 1.8, 0, 7);
      }
    }
    context.fill();
    if (now < this.until) requestAnimationFrame((next) => this.frame(next));
    else {
      this.moving = false;
      this.copy();
    }
  }

  copy() {
    const ratio = devicePixelRatio || 1;
    const context = this.canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.base, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  point(event) {
    this.tell(this.nearest(event));
  }

  nearest(event) {
    if (!this.at) return null;
    const box = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    let least = REACH;
    this.at.forEach(([x, y], agent) => {
      const distance = Math.hypot(px - x, py - y);
      if (distance < least) [least, best] = [distance, { agent }];
    });
    if (best) return best;
    least = 6;
    for (const [i, j] of this.network.links) {
      const distance = toSegment(px, py, this.at[i], this.at[j]);
      if (distance < least) [least, best] = [distance, { link: [i, j] }];
    }
    return best;
  }
}

// To the edges of the canvas, whatever part of the square the layout has used.
function spread(places, width, height) {
  const fit = (index, size) => {
    let [low, high] = [Infinity, -Infinity]; // in a loop: a hundred thousand agents are too many arguments
    for (const place of places) [low, high] = [Math.min(low, place[index]), Math.max(high, place[index])];
    return (value) => MARGIN + (high > low ? (value - low) / (high - low) : 0.5) * (size - 2 * MARGIN);
  };
  const [x, y] = [fit(0, width), fit(1, height)];
  return places.map((place) => [x(place[0]), y(place[1])]);
}

function toSegment(px, py, [x, y], [u, v]) {
  const [dx, dy] = [u - x, v - y];
  const part = Math.max(0, Math.min(1, ((px - x) * dx + (py - y) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(px - x - part * dx, py - y - part * dy);
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "quiet", "card", "accent", "alarm"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
