/** How much pages overlap on the question: a matrix to zoom into and step through. */

import { accentColor, h, place, refill } from "./dom.js";

/**
 * @typedef {object} Callbacks
 * @property {(page: any) => string | undefined} picture address of a page's image
 * @property {(first: any, second: any) => Promise<any[] | null>} pairs best matching patches of two pages, or null if unavailable
 * @property {(page: any) => string} name
 * @property {(document: string, page: number) => void} open
 * @property {(changes: {order?: string, cell?: string}) => void} change called when another order or cell is selected
 */

const ZOOM_STEP = 1.5;
const MIN_LABEL_PIXELS = 17;
const HOVER_MILLISECONDS = 150;

export class SimilarityMap {
  scale = 1;
  order = "rank";
  /** @type {[number, number]} ranks from 0 */ pinned = [0, 0];
  /** @type {[number, number]} */ shown = [-1, -1];
  /** @type {Map<string, Promise<any[] | null>>} */ pairs = new Map();
  /** @type {Map<number, PointerEvent>} */ pointers = new Map();
  dragged = false;
  timer = 0;

  /**
   * @param {any[]} pages all searched pages by rank
   * @param {number[][]} rows similarity of the best of them, in the same order
   * @param {Set<number>} chosen ranks from 0
   * @param {number} framed number of pages in the frame when sorted by rank
   * @param {Callbacks} callbacks
   */
  constructor(pages, rows, chosen, framed, callbacks) {
    const size = rows.length;
    this.pages = pages;
    this.rows = rows;
    this.size = size;
    this.chosen = chosen;
    this.framed = framed;
    this.callbacks = callbacks;
    this.largest = Math.max(0, ...rows.map((row) => Math.max(...row))) || 1;
    /** Rank of the page in each row and column. @type {number[]} */ this.ranks = [...Array(size).keys()];
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { width: size || 1, height: size || 1, "aria-hidden": "true" }));
    this.marks = h("div", { class: "marks", "aria-hidden": "true" });
    this.field = h("div", { class: "field" }, this.canvas, this.marks);
    this.box = h("div", { class: "map", tabindex: 0, role: "application", "aria-label": `Overlap of the top ${size} pages. Arrow keys step through the cells, plus and minus zoom, Enter opens a page.` }, this.field);
    this.switches = h("span", { class: "switch", role: "group", "aria-label": "Order of the pages" });
    const zoom = (/** @type {string} */ text, /** @type {string} */ label, /** @type {number} */ by) => h("button", { class: "small", "aria-label": label, onclick: () => this.zoom(by) }, text);
    this.element = h("div", { class: "matrix" }, h("div", { class: "row small" }, this.switches, h("span", { class: "switch" }, zoom("−", "Zoom out of the matrix", 1 / ZOOM_STEP), zoom("+", "Zoom into the matrix", ZOOM_STEP))), this.box);
    this.caption = h("p", { class: "small", "aria-live": "polite" });
    this.sheets = h("div", { class: "pair" });
    this.detail = h("div", { class: "pairs" }, this.caption, this.sheets);
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
      this.pointers.set(event.pointerId, event);
    });
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) box.addEventListener(end, (event) => this.pointers.delete(/** @type {PointerEvent} */ (event).pointerId));
    box.addEventListener("click", (event) => {
      if (!this.dragged) this.pin(this.at(event));
    });
    // Without focus the wheel scrolls the page as usual. A pinch on a touchpad is a wheel event with Ctrl.
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
    const before = this.pointers.get(event.pointerId);
    const other = [...this.pointers.values()].find((one) => one.pointerId !== event.pointerId);
    if (before && other) {
      const distance = (/** @type {PointerEvent} */ one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
      this.zoom(distance(event) / distance(before), event);
      this.dragged = true;
    } else if (before && event.pointerType === "mouse" && this.scale > 1) {
      this.box.scrollBy(before.clientX - event.clientX, before.clientY - event.clientY);
      this.dragged ||= Math.hypot(before.clientX - event.clientX, before.clientY - event.clientY) > 2;
    }
    if (before) this.pointers.set(event.pointerId, event);
    if (!this.dragged && this.size) this.show(this.at(event));
  }

  /** @param {MouseEvent} event @returns {[number, number]} the ranks of the cell under the pointer */
  at(event) {
    const area = this.field.getBoundingClientRect();
    const rank = (/** @type {number} */ fraction) => this.ranks[Math.min(this.size - 1, Math.max(0, Math.floor(fraction * this.size)))];
    return [rank((event.clientY - area.top) / area.height), rank((event.clientX - area.left) / area.width)];
  }

  /** @param {number} by @param {{clientX: number, clientY: number}} [around] the point that keeps its position; by default the current cell */
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
    } else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? ZOOM_STEP : 1 / ZOOM_STEP);
    else if (event.key === "Enter") this.callbacks.open(this.pages[this.pinned[0]].document, this.pages[this.pinned[0]].page);
    else return;
    event.preventDefault();
    event.stopPropagation(); // the page viewer uses the same keys
  }

  /** @param {[number, number]} cell */
  pin(cell) {
    this.pinned = cell;
    this.show(cell);
    this.callbacks.change({ cell: cell.map((rank) => rank + 1).join(".") });
  }

  /** Show the order and cell of an address. @param {{order?: string, cell?: string}} view */
  set({ order, cell }) {
    this.order = order === "page" ? "page" : "rank";
    const [row, column] = (cell ?? "").split(".").map((rank) => Number(rank) - 1);
    if (this.rows[row] && this.rows[column]) this.pinned = [row, column];
    this.ranks = [...Array(this.size).keys()];
    if (this.order === "page") this.ranks.sort((a, b) => this.pages[a].index - this.pages[b].index);
    const choice = (/** @type {string} */ value, /** @type {string} */ text) => h("button", { class: "small", "aria-pressed": this.order === value, onclick: () => this.choose(value) }, text);
    refill(this.switches, choice("rank", "By rank"), choice("page", "By page"));
    this.draw();
    this.reveal();
  }

  /** Draw again what depends on the size, once the matrix is visible. */
  reveal() {
    this.shown = [-1, -1];
    if (this.size) this.show(this.pinned);
  }

  /** @param {string} order */
  choose(order) {
    this.set({ order });
    this.callbacks.change({ order: order === "page" ? "page" : undefined });
  }

  draw() {
    const context = this.canvas.getContext("2d");
    if (!context || !this.size) return;
    context.clearRect(0, 0, this.size, this.size);
    context.fillStyle = accentColor();
    this.ranks.forEach((first, row) => this.ranks.forEach((second, column) => {
      // Most values are small: the square root makes them visible.
      context.globalAlpha = Math.sqrt(this.rows[first][second] / this.largest);
      context.fillRect(column, row, 1, 1);
    }));
    this.label();
  }

  /** Frame the chosen pages, and write page numbers on the diagonal where there is room. */
  label() {
    const mark = (/** @type {string} */ kind, /** @type {number} */ row, /** @type {number} */ column, /** @type {number} */ cells, text = "") =>
      place(h("div", { class: kind }, text), [column, row, column + cells, row + cells].map((edge) => edge / this.size));
    const hasRoom = this.field.clientWidth / this.size >= MIN_LABEL_PIXELS;
    const numbers = this.ranks.flatMap((rank, index) => hasRoom ? [mark(this.chosen.has(rank) ? "number chosen" : "number", index, index, 1, String(this.pages[rank].page))] : []);
    const frames = this.order === "rank" ? [mark("spot", 0, 0, this.framed)] : this.ranks.flatMap((rank, index) => this.chosen.has(rank) ? [mark("spot", index, index, 1)] : []);
    const [row, column] = this.shown.map((rank) => this.ranks.indexOf(rank));
    this.marks.replaceChildren(...numbers, ...(this.size ? frames : []), ...(row < 0 ? [] : [mark("cell", row, column, 1)]));
  }

  /** @param {[number, number]} cell */
  show(cell) {
    if (String(cell) === String(this.shown)) return;
    this.shown = cell;
    this.label();
    const [first, second] = cell.map((rank) => this.pages[rank]);
    const percent = Math.round((100 * this.rows[cell[0]][cell[1]]) / this.largest);
    const { name } = this.callbacks;
    const title = first === second ? `${name(first)} with itself` : `${name(first)} with ${name(second).replace(/^Page/, "page")}`;
    this.caption.replaceChildren(h("strong", {}, title), ` · ${percent}% of the largest overlap`);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.compare(cell, first, second), HOVER_MILLISECONDS);
  }

  /** @param {[number, number]} cell @param {any} first @param {any} second */
  async compare(cell, first, second) {
    const key = String(cell);
    if (!this.box.clientWidth) return; // folded
    if (!this.pairs.has(key)) this.pairs.set(key, this.callbacks.pairs(first, second).catch(() => null));
    const pairs = (await this.pairs.get(key)) ?? null;
    if (key !== String(this.shown)) return;
    if (!pairs) this.pairs.delete(key);
    const sheets = [first, second].map((page, side) => this.sheet(page, (pairs ?? []).map((one) => (side ? one.second : one.first))));
    this.sheets.replaceChildren(...sheets.slice(0, first === second ? 1 : 2), this.words(pairs));
  }

  /** @param {any} page @param {number[][]} boxes */
  sheet(page, boxes) {
    const source = this.callbacks.picture(page);
    const frames = boxes.map((box, index) => place(h("span", { class: index ? "patch" : "patch best" }), box));
    const content = source ? [h("img", { src: source, alt: "" }), ...frames] : [h("span", { class: "soft small" }, "No picture")];
    return h("button", { class: "mini", onclick: () => this.callbacks.open(page.document, page.page) }, h("span", { class: "small" }, this.callbacks.name(page)), h("span", { class: "paper" }, ...content));
  }

  /** @param {any[] | null} pairs */
  words(pairs) {
    if (!pairs) return h("p", { class: "soft small" }, "The matching patches aren't available.");
    const bare = (/** @type {string} */ word) => word.replace(/[.,;:!?]+$/, "");
    const texts = pairs.filter((one) => one.words[0] && one.words[1]).map(({ words: [first, second] }) => (bare(first) === bare(second) ? bare(first) : `${bare(first)} – ${bare(second)}`));
    const items = [...new Set(texts)].map((text) => h("li", {}, text));
    return h("div", { class: "small" }, h("p", { class: "soft" }, pairs.length ? "The best matching patches are framed." : "These pages don't overlap on your question."),
      items.length ? h("ul", { class: "chips", "aria-label": "Best matching words" }, ...items) : null);
  }
}
