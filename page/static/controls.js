// The playground: controls, presets, the address that says what they are, and what can be copied of it.

import { byId, element, say } from "./dom.js";

const WAIT = 120; // milliseconds after the last keystroke

export class Controls {
  constructor(described, show, busy) {
    Object.assign(this, { described, show, busy, form: byId("controls"), viewer: crypto.randomUUID(), asked: 0, last: null });
    this.form.hidden = false;
    this.form.elements.topology.replaceChildren(...described.topologies.map((name) => element("option", { value: name }, name)));
    for (const [name, value] of Object.entries(described.defaults)) {
      if (this.form.elements[name].type === "number" && value !== "") this.form.elements[name].placeholder = value; // what holds if it is empty
    }
    this.presets();
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => this.later());
    addEventListener("hashchange", () => this.read(location.hash));
    byId("copy-link").addEventListener("click", () => this.copy(location.href, "link"));
    byId("copy-command").addEventListener("click", () => this.copy(this.last?.command, "command line"));
    byId("copy-toml").addEventListener("click", () => this.copy(this.last?.toml, "TOML"));
    this.read(location.hash);
  }

  presets() {
    for (const [name, query] of Object.entries(this.described.presets)) {
      const button = element("button", { type: "button", "aria-pressed": "false", "data-query": new URLSearchParams(query).toString() }, name);
      button.addEventListener("click", () => this.read(`#${button.dataset.query}`));
      byId("presets").append(button);
    }
  }

  read(hash) {
    const given = { ...this.described.defaults, ...Object.fromEntries(new URLSearchParams(hash.slice(1))) };
    for (const [name, value] of Object.entries(given)) {
      const field = this.form.elements[name];
      if (!field) continue;
      if (field.type === "checkbox") field.checked = value === "1";
      else field.value = value;
    }
    this.run(new URLSearchParams(hash.slice(1))); // as the link has it: what no control can hold is refused by the server
  }

  query() {
    const query = new URLSearchParams();
    for (const [name, fallback] of Object.entries(this.described.defaults)) {
      const field = this.form.elements[name];
      const value = field.type === "checkbox" ? (field.checked ? "1" : "0") : field.value;
      const same = value === fallback || (value !== "" && fallback !== "" && Number(value) === Number(fallback));
      if (!same && !(value === "" && name !== "epsilon")) query.set(name, value);
    }
    return query;
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), WAIT);
  }

  async run(query = this.query()) {
    clearTimeout(this.timer);
    const text = query.toString();
    this.fit();
    if (location.hash.slice(1) !== text) history.replaceState(null, "", text ? `#${text}` : location.pathname);
    for (const button of byId("presets").children) button.setAttribute("aria-pressed", String(button.dataset.query === text));
    query.set("viewer", this.viewer);
    this.asked += 1;
    const asked = this.asked;
    const unread = [...this.form.elements].find((field) => field.validity?.badInput); // what was typed is no number: its value is empty
    if (unread) {
      this.busy(false);
      this.refuse(`${unread.name}: expected a number`, unread.name);
      return;
    }
    this.busy(true);
    try {
      const answer = await fetch(`/play?${query}`);
      if (asked !== this.asked || answer.status === 204) return;
      this.take(answer.ok ? await answer.json() : { refused: await answer.text() });
    } catch {
      this.refuse("The page's server does not answer. It can be started again with dpp2 playground.");
    } finally {
      if (asked === this.asked) this.busy(false);
    }
  }

  take(state) {
    if (state.refused) {
      this.refuse(state.refused, state.field);
      return;
    }
    byId("refused").hidden = true;
    document.querySelector("main").classList.remove("stale");
    this.mark(null);
    this.last = state;
    this.show(state);
  }

  refuse(why, name = "") {
    const told = why.replace(/\d{13,}/g, (digits) => `${digits.slice(0, 6)}… (${digits.length} digits)`).replace(/(\d\.\d{5})\d{3,}/g, "$1…");
    say(byId("refused"), `${told}${this.last ? ". What is shown is from the last valid settings." : ""}`);
    byId("refused").hidden = false;
    document.querySelector("main").classList.toggle("stale", this.last !== null);
    const field = this.form.elements[name];
    this.mark(field?.labels?.[0] && !field.labels[0].hidden ? field : null, told.slice(told.indexOf(": ") + 2));
  }

  // What is wrong stands under the field that it is about, too.
  mark(field, why = "") {
    for (const other of this.form.querySelectorAll("[aria-invalid]")) {
      other.removeAttribute("aria-invalid");
      other.setAttribute("aria-describedby", other.getAttribute("aria-describedby").replace(/ ?wrong-here$/, ""));
      if (!other.getAttribute("aria-describedby")) other.removeAttribute("aria-describedby");
    }
    byId("wrong-here")?.remove();
    if (!field) return;
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", `${field.getAttribute("aria-describedby") ?? ""} wrong-here`.trim());
    field.labels[0].append(element("span", { id: "wrong-here", class: "wrong" }, why));
  }

  // Controls that do not apply are not there.
  fit() {
    const { tier, epsilon } = this.form.elements;
    for (const label of this.form.querySelectorAll("[data-tier]")) label.hidden = label.dataset.tier !== tier.value;
    byId("noise-scale").hidden = tier.value === "three" && epsilon.value !== ""; // it is found
  }

  async copy(text, what) {
    if (!text) return;
    try {
      await navigator.clipboard.writeText(text);
      say(byId("copied"), `The ${what} is in the clipboard.`);
    } catch {
      say(byId("copied"), text);
    }
  }
}
