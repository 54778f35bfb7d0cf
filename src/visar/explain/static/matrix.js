/** How alike pages are in what was asked: a map of cells to zoom into and to walk through. */

import { h } from "./dom.js";

/**
 * @typedef {object} Places where the map gets what it shows beside its cells
 * @property {(page: any) => string | undefined} picture of a page
 * @property {(first: any, second: any) => Promise<any[] | null>} pairs the best matching patches; null if they are not known
 * @property {(page: any) => string} name
 * @property {(document: string, page: number) => void} open
 * @property {(changes: {order?: string, cell?: string}) => void} change called when another order or cell is chosen
 */

const STEP = 1.5;
const READABLE = 17;
const PATIENCE = 150;

export class SimilarityMap {
  scale = 1;
  order = "rank";
  /** @type {[number, number]} by rank from 0 */ pinned = [0, 0];
  /** @type {[number, number]} */ shown = [-1, -1];
  /** @type {Map<string, Promise<any[] | null>>} */ known = new Map();
  /** @type {Map<number, PointerEvent>} */ fingers = new Map();
  dragged = false;
  timer = 0;

  /**
   * @param {any[]} best the searched pages by rank
   * @param {Float32Array} values row by row
   * @param {number} size
   * @param {Set<number>} chosen ranks from 0
   * @param {number} framed so many of the first are framed, by rank
   * @param {Places} places
   */
  constructor(best, values, size, chosen, framed, places) {
    this.best = best;
    this.values = values;
    this.size = size;
    this.chosen = chosen;
    this.framed = framed;
    this.places = places;
    this.largest = values.reduce((most, value) => Math.max(most, value), 0) || 1;
    /** Which rank each row and column shows. @type {number[]} */ this.ranks = [...Array(size).keys()];
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { width: size || 1, height: size || 1, "aria-hidden": "true" }));
    this.marks = h("div", { class: "marks", "aria-hidden": "true" });
    this.field = h("div", { class: "field" }, this.canvas, this.marks);
    this.box = h("div", { class: "map", tabindex: 0, role: "application", "aria-label": `Similarity of the best ${size} pages. Arrow keys step through cells, plus and minus zoom, Enter opens a page.` }, this.field);
    this.switches = h("span", { class: "switch", role: "group", "aria-label": "Order of the pages" });
    const zoom = (/** @type {string} */ text, /** @type {string} */ label, /** @type {number} */ by) => h("button", { class: "small", "aria-label": label, onclick: () => this.zoom(by) }, text);
    this.element = h("div", { class: "matrix" }, h("div", { class: "row small" }, this.switches, h("span", { class: "switch" }, zoom("−", "Zoom out of the matrix", 1 / STEP), zoom("+", "Zoom into the matrix", STEP))), this.box);
    this.said = h("p", { class: "small", "aria-live": "polite" });
    this.sheets = h("div", { class: "pair" });
    this.detail = h("div", { class: "pairs" }, this.said, this.sheets);
    if (size > 1) this.pinned = [0, 1];
    this.listen();
    this.set({});
  }

  listen() {
    const { box } = this;
    box.addEventListener("pointermove", (event) => this.move(event));
    box.addEventListener("pointerleave", () => this.show(this.pinned));
    box.addEventListener("pointerdown", (event) => {
      this.dragged = false;
      this.fingers.set(event.pointerId, event);
    });
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) box.addEventListener(end, (event) => this.fingers.delete(/** @type {PointerEvent} */ (event).pointerId));
    box.addEventListener("click", (event) => {
      if (!this.dragged) this.pin(this.at(event));
    });
    // Without the focus the wheel scrolls the page, as everywhere; a pinch on a touchpad is a wheel with Ctrl.
    box.addEventListener("wheel", (event) => {
      const by = Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002));
      if (!(event.ctrlKey || event.metaKey || document.activeElement === box) || (by < 1 && this.scale === 1)) return;
      event.preventDefault();
      this.zoom(by, event);
    }, { passive: false });
    box.addEventListener("keydown", (event) => this.press(event));
  }

  /** @param {PointerEvent} event */
  move(event) {
    const before = this.fingers.get(event.pointerId);
    const other = [...this.fingers.values()].find((one) => one.pointerId !== event.pointerId);
    if (before && other) {
      const apart = (/** @type {PointerEvent} */ one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
      this.zoom(apart(event) / apart(before), event);
      this.dragged = true;
    } else if (before && event.pointerType === "mouse" && this.scale > 1) {
      this.box.scrollBy(before.clientX - event.clientX, before.clientY - event.clientY);
      this.dragged ||= Math.hypot(before.clientX - event.clientX, before.clientY - event.clientY) > 2;
    }
    if (before) this.fingers.set(event.pointerId, event);
    if (!this.dragged && this.size) this.show(this.at(event));
  }

  /** @param {MouseEvent} event @returns {[number, number]} the cell below the pointer, by rank */
  at(event) {
    const area = this.field.getBoundingClientRect();
    const place = (/** @type {number} */ share) => this.ranks[Math.min(this.size - 1, Math.max(0, Math.floor(share * this.size)))];
    return [place((event.clientY - area.top) / area.height), place((event.clientX - area.left) / area.width)];
  }

  /** @param {number} by @param {{clientX: number, clientY: number}} [around] what stays where it is; else the cell shown */
  zoom(by, around) {
    const before = this.field.getBoundingClientRect();
    const cell = this.shown.map((rank) => (this.ranks.indexOf(rank) + 0.5) / this.size);
    const point = around ?? { clientX: before.left + cell[1] * before.width, clientY: before.top + cell[0] * before.height };
    const [x, y] = [(point.clientX - before.left) / before.width, (point.clientY - before.top) / before.height];
    this.scale = Math.min(Math.max(4, this.size / 5), Math.max(1, this.scale * by));
    this.field.style.width = `${100 * this.scale}%`;
    this.box.classList.toggle("zoomed", this.scale > 1);
    const after = this.field.getBoundingClientRect();
    this.box.scrollBy(after.left + x * after.width - point.clientX, after.top + y * after.height - point.clientY);
    this.label();
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const steps = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] });
    if (event.ctrlKey || event.metaKey || event.altKey || !this.size) return;
    if (event.key in steps) {
      const next = this.pinned.map((rank, axis) => this.ranks[Math.min(this.size - 1, Math.max(0, this.ranks.indexOf(rank) + steps[event.key][axis]))]);
      this.pin([next[0], next[1]]);
      this.marks.querySelector(".cell")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? STEP : 1 / STEP);
    else if (event.key === "Enter") this.places.open(this.best[this.pinned[0]].document, this.best[this.pinned[0]].page);
    else return;
    event.preventDefault();
    event.stopPropagation(); // the same keys step and zoom in the page viewer
  }

  /** @param {[number, number]} cell */
  pin(cell) {
    this.pinned = cell;
    this.show(cell);
    this.places.change({ cell: cell.map((rank) => rank + 1).join(".") });
  }

  /** Show what an address says. @param {{order?: string, cell?: string}} view */
  set({ order, cell }) {
    this.order = order === "page" ? "page" : "rank";
    const [row, column] = (cell ?? "").split(".").map((rank) => Number(rank) - 1);
    if (this.best[row] && this.best[column] && Math.max(row, column) < this.size) this.pinned = [row, column];
    this.ranks = [...Array(this.size).keys()];
    if (this.order === "page") this.ranks.sort((a, b) => this.best[a].place - this.best[b].place);
    const choice = (/** @type {string} */ value, /** @type {string} */ text) => h("button", { class: "small", "aria-pressed": this.order === value, onclick: () => this.choose(value) }, text);
    const focused = this.switches.contains(document.activeElement);
    this.switches.replaceChildren(choice("rank", "By rank"), choice("page", "By page"));
    if (focused) /** @type {HTMLElement | null} */ (this.switches.querySelector('[aria-pressed="true"]'))?.focus();
    this.draw();
    this.shown = [-1, -1];
    if (this.size) this.show(this.pinned);
  }

  /** @param {string} order */
  choose(order) {
    this.set({ order });
    this.places.change({ order: order === "page" ? "page" : undefined });
  }

  draw() {
    const context = this.canvas.getContext("2d");
    if (!context || !this.size) return;
    context.clearRect(0, 0, this.size, this.size);
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
    this.ranks.forEach((first, row) => this.ranks.forEach((second, column) => {
      // The root spreads the small values, of which there are most.
      context.globalAlpha = Math.sqrt(this.values[first * this.size + second] / this.largest);
      context.fillRect(column, row, 1, 1);
    }));
    this.label();
  }

  /** Frame what was taken, and number the pages on the diagonal where there is room. */
  label() {
    const unit = 100 / this.size;
    const put = (/** @type {string} */ kind, /** @type {number} */ row, /** @type {number} */ column, /** @type {number} */ cells, text = "") => {
      const mark = h("div", { class: kind }, text);
      Object.assign(mark.style, { left: `${column * unit}%`, top: `${row * unit}%`, width: `${cells * unit}%`, height: `${cells * unit}%` });
      return mark;
    };
    const room = this.field.clientWidth / this.size >= READABLE;
    const numbers = this.ranks.flatMap((rank, place) => room ? [put(this.chosen.has(rank) ? "number chosen" : "number", place, place, 1, String(this.best[rank].page))] : []);
    const frames = this.order === "rank" ? [put("spot", 0, 0, this.framed)] : this.ranks.flatMap((rank, place) => this.chosen.has(rank) ? [put("spot", place, place, 1)] : []);
    const [row, column] = this.shown.map((rank) => this.ranks.indexOf(rank));
    this.marks.replaceChildren(...numbers, ...(this.size ? frames : []), ...(row < 0 ? [] : [put("cell", row, column, 1)]));
  }

  /** @param {[number, number]} cell */
  show(cell) {
    if (String(cell) === String(this.shown)) return;
    this.shown = cell;
    this.label();
    const [first, second] = cell.map((rank) => this.best[rank]);
    const share = Math.round((100 * this.values[cell[0] * this.size + cell[1]]) / this.largest);
    const { name } = this.places;
    const title = cell[0] === cell[1] ? `${name(first)} with itself` : `${name(first)} with ${name(second).replace(/^Page/, "page")}`;
    this.said.replaceChildren(h("strong", {}, title), ` · ${share} % of the most alike`);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.compare(cell, first, second), PATIENCE);
  }

  /** @param {[number, number]} cell @param {any} first @param {any} second */
  async compare(cell, first, second) {
    const key = String(cell);
    if (!this.known.has(key)) this.known.set(key, this.places.pairs(first, second).catch(() => null));
    const pairs = (await this.known.get(key)) ?? null;
    if (key !== String(this.shown)) return;
    if (!pairs) this.known.delete(key);
    const sheets = [first, second].map((page, side) => this.sheet(page, (pairs ?? []).map((one) => (side ? one.second : one.first))));
    this.sheets.replaceChildren(...sheets.slice(0, cell[0] === cell[1] ? 1 : 2), this.words(pairs));
  }

  /** @param {any} page @param {number[][]} boxes */
  sheet(page, boxes) {
    const source = this.places.picture(page);
    const frames = boxes.map(([left, top, right, bottom], place) => {
      const frame = h("span", { class: place ? "patch" : "patch best" });
      Object.assign(frame.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * (right - left)}%`, height: `${100 * (bottom - top)}%` });
      return frame;
    });
    const content = source ? [h("img", { src: source, alt: "" }), ...frames] : [h("span", { class: "soft small" }, "no picture here")];
    return h("button", { class: "mini", onclick: () => this.places.open(page.document, page.page) }, h("span", { class: "small" }, this.places.name(page)), h("span", { class: "paper" }, ...content));
  }

  /** @param {any[] | null} pairs */
  words(pairs) {
    if (!pairs) return h("p", { class: "soft small" }, "Their patches are not known here.");
    const bare = (/** @type {string} */ word) => word.replace(/[.,;:!?]+$/, "");
    const texts = pairs.filter((one) => one.words[0] && one.words[1]).map(({ words: [first, second] }) => (bare(first) === bare(second) ? bare(first) : `${bare(first)} – ${bare(second)}`));
    const alike = [...new Set(texts)].map((text) => h("li", {}, text));
    const said = pairs.length ? "Framed: the patches that match best." : "They share nothing of what was asked.";
    return h("div", { class: "small" }, h("p", { class: "soft" }, said), alike.length ? h("ul", { class: "chips", "aria-label": "Words that match best" }, ...alike) : "");
  }
}
