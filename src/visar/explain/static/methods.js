/** A table that compares methods on one question: the pages each one chooses, and the cost of reading them. */

import { counted, h } from "./dom.js";

const MAX_COLUMNS = 14;

/**
 * @param {any} search @param {any} explanation
 * @param {(page: any) => string} name @param {(document: string, page: number) => void} open
 */
export function methodTable(search, explanation, name, open) {
  const { choices, pages } = explanation;
  const votes = new Map();
  for (const choice of choices) for (const page of choice.pages) votes.set(page, (votes.get(page) ?? 0) + 1);
  const chosen = [...votes.keys()].sort((a, b) => votes.get(b) - votes.get(a) || pages[a].rank - pages[b].rank);
  const columns = chosen.slice(0, MAX_COLUMNS);
  const hasMore = chosen.length > columns.length;
  const head = (/** @type {number} */ index) => h("th", { scope: "col" }, h("button", { class: "link small", "aria-label": `Open ${name(pages[index])}`, onclick: () => open(pages[index].document, pages[index].page) }, String(pages[index].page)));
  const dot = (/** @type {any} */ choice, /** @type {number} */ index) => {
    const order = choice.pages.indexOf(index) + 1;
    return h("td", {}, order ? h("span", { class: "dot", role: "img", "aria-label": `chosen, number ${order}`, title: `Number ${order}` }) : h("span", { class: "none", "aria-label": "no" }, "·"));
  };
  const agreement = (/** @type {number} */ index) => {
    const bar = h("i");
    bar.style.height = `${(100 * votes.get(index)) / choices.length}%`;
    const label = `${votes.get(index)} of ${choices.length} methods`;
    return h("td", {}, h("span", { class: "agreed", role: "img", "aria-label": label, title: label }, bar));
  };
  const others = (/** @type {any} */ choice) => hasMore ? h("td", { class: "soft" }, `+${choice.pages.filter((/** @type {number} */ index) => !columns.includes(index)).length}`) : null;
  const rows = choices.map((/** @type {any} */ choice) => h("tr", { class: choice.method === search.query.method ? "used" : "" },
    h("th", { scope: "row" }, choice.label), ...columns.map((index) => dot(choice, index)), others(choice),
    h("td", {}, String(choice.pages.length)), h("td", {}, choice.tokens === null ? "–" : choice.tokens.toLocaleString("en")), h("td", {}, duration(choice.seconds))));
  const table = h("table", { class: "methods small" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Page"), ...columns.map(head), hasMore ? h("th", { scope: "col" }, "others") : null,
      ...["pages", "tokens", "time"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, ...rows),
    h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "agreement"), ...columns.map(agreement), h("td", { colspan: hasMore ? 4 : 3 }))));
  return h("section", { "aria-label": "Compare methods" },
    h("h2", { class: "label" }, "Compare methods"),
    h("p", { class: "soft small" }, "The pages each method chooses for this question. The bars show how many methods agree. ", savings(search, choices)),
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table of methods" }, table));
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
