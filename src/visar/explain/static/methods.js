/** A table that compares methods on one question: the pages each one chooses, and the cost of reading them. */

import { counted, fitted, h } from "./dom.js";

const MAX_COLUMNS = 14;
/** Widths in pixels: of a column of dots, and of the columns beside those. */
const DOT_COLUMN = 28;
const OTHER_COLUMNS = 310;
/** Without columns of its own, what a method costs stands below its name. */
const NAME_COLUMN = 150;
const NARROW = 460;

/** The table has as many columns as there is room for. */
export class MethodTable {
  /**
   * @param {any} search @param {any} explanation
   * @param {(page: any) => string} name @param {import("./answers.js").Open} open
   */
  constructor(search, explanation, name, open) {
    const { choices, pages } = explanation;
    this.method = search.query.method;
    this.name = name;
    this.open = open;
    this.choices = choices;
    this.pages = pages;
    /** Number of methods that choose a page, by its index. @type {Map<number, number>} */ this.votes = new Map();
    for (const choice of choices) for (const page of choice.pages) this.votes.set(page, (this.votes.get(page) ?? 0) + 1);
    this.ranked = [...this.votes].sort(([a, votesOfA], [b, votesOfB]) => votesOfB - votesOfA || pages[a].rank - pages[b].rank).map(([page]) => page);
    this.element = h("section", { "aria-label": "Compare methods" },
      h("h2", { class: "label" }, "Compare methods"),
      h("p", { class: "soft small" }, "The pages each method chooses for this question. The bars show how many methods agree. ", savings(search, choices)),
      fitted("wide", OTHER_COLUMNS + MAX_COLUMNS * DOT_COLUMN, (width) => this.table(width)));
  }

  /** @param {number} width */
  table(width) {
    const isNarrow = width < NARROW;
    const room = Math.max(1, Math.min(MAX_COLUMNS, Math.floor((width - (isNarrow ? NAME_COLUMN : OTHER_COLUMNS)) / DOT_COLUMN)));
    const hasMore = this.ranked.length > room;
    const columns = this.ranked.slice(0, hasMore ? Math.max(1, room - 1) : room);
    const { choices, pages, name, open } = this;
    const head = (/** @type {number} */ index) => h("th", { scope: "col" }, h("button", { class: "link small", "aria-label": `Open ${name(pages[index])}`, onclick: () => open(pages[index].document, pages[index].page) }, String(pages[index].page)));
    const costs = (/** @type {any} */ choice) => [String(choice.pages.length), choice.tokens === null ? "–" : choice.tokens.toLocaleString("en"), duration(choice.seconds)];
    const rows = choices.map((/** @type {any} */ choice) => {
      const [count, tokens, time] = costs(choice);
      return h("tr", { class: choice.method === this.method ? "used" : "" },
        h("th", { scope: "row" }, choice.label, isNarrow ? h("div", { class: "soft" }, `${counted(choice.pages.length, "page")} · ${tokens} tokens · ${time}`) : null),
        ...columns.map((index) => dot(choice, index)), hasMore ? h("td", { class: "soft" }, `+${choice.pages.filter((/** @type {number} */ index) => !columns.includes(index)).length}`) : null,
        ...(isNarrow ? [] : [count, tokens, time].map((text) => h("td", { class: "cost" }, text))));
    });
    return h("table", { class: `methods small${isNarrow ? " narrow" : ""}` },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Page"), ...columns.map(head), hasMore ? h("th", { scope: "col" }, "…") : null,
        ...(isNarrow ? [] : ["pages", "tokens", "time"].map((text) => h("th", { scope: "col", class: "cost" }, text))))),
      h("tbody", {}, ...rows),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "agreement"), ...columns.map((index) => this.agreement(index)), ...(hasMore || !isNarrow ? [h("td", { colspan: Number(hasMore) + (isNarrow ? 0 : 3) })] : []))));
  }

  /** @param {number} index */
  agreement(index) {
    const votes = this.votes.get(index) ?? 0;
    const bar = h("i");
    bar.style.height = `${(100 * votes) / this.choices.length}%`;
    const label = `${votes} of ${this.choices.length} methods`;
    return h("td", {}, h("span", { class: "agreed", role: "img", "aria-label": label, title: label }, bar));
  }
}

/** @param {any} choice @param {number} index */
function dot(choice, index) {
  const order = choice.pages.indexOf(index) + 1;
  return h("td", {}, order ? h("span", { class: "dot", role: "img", "aria-label": `chosen, number ${order}`, title: `Number ${order}` }) : h("span", { class: "none", "aria-label": "no" }, "·"));
}

/** @param {number} seconds */
const duration = (seconds) => (seconds < 0.0995 ? `${(1000 * seconds).toFixed(seconds < 0.00995 ? 1 : 0)} ms` : `${seconds.toFixed(1)} s`);

/** Compare the method with a fixed number of pages, in a sentence. @param {any} search @param {any[]} choices */
function savings(search, choices) {
  const fixed = choices[choices.length - 1];
  const own = choices.find((one) => one.method === search.query.method) ?? choices[0];
  const pages = fixed.pages.length - own.pages.length;
  if (own === fixed || pages === 0) return "";
  const how = pages > 0 ? "fewer" : "more";
  const tokens = own.tokens === null || fixed.tokens === null ? "" : ` and about ${(100 * Math.round(Math.abs(fixed.tokens - own.tokens) / 100)).toLocaleString("en")} ${how} tokens`;
  return `Compared with a fixed top ${fixed.pages.length}, ${own.label} reads ${counted(Math.abs(pages), `${how} page`)}${tokens}. Choosing takes ${duration(own.seconds)} instead of ${duration(fixed.seconds)}.`;
}
