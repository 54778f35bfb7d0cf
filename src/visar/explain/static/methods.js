/** Methods side by side on the same question: which pages each takes, and what that costs to read. */

import { counted, h } from "./dom.js";

const MOST_COLUMNS = 14;

/**
 * @param {any} search @param {any} explanation
 * @param {(page: any) => string} name @param {(document: string, page: number) => void} open
 */
export function methodTable(search, explanation, name, open) {
  const { choices, pages } = explanation;
  const takers = new Map();
  for (const choice of choices) for (const place of choice.pages) takers.set(place, (takers.get(place) ?? 0) + 1);
  const places = [...takers.keys()].sort((a, b) => takers.get(b) - takers.get(a) || pages[a].rank - pages[b].rank);
  const columns = places.slice(0, MOST_COLUMNS);
  const more = places.length - columns.length;
  const head = (/** @type {number} */ place) => h("th", { scope: "col" }, h("button", { class: "link small", "aria-label": `Open ${name(pages[place])}`, onclick: () => open(pages[place].document, pages[place].page) }, String(pages[place].page)));
  const dot = (/** @type {any} */ choice, /** @type {number} */ place) => {
    const order = choice.pages.indexOf(place);
    return h("td", {}, order < 0 ? h("span", { class: "none", "aria-label": "no" }, "·") : h("span", { class: "dot", role: "img", "aria-label": `taken, its number ${order + 1}`, title: `Its number ${order + 1}` }));
  };
  const agreed = (/** @type {number} */ place) => {
    const bar = h("i");
    bar.style.height = `${(100 * takers.get(place)) / choices.length}%`;
    return h("td", {}, h("span", { class: "agreed", role: "img", "aria-label": `${takers.get(place)} of ${choices.length} methods`, title: `${takers.get(place)} of ${choices.length} methods` }, bar));
  };
  const rest = (/** @type {any} */ choice) => more ? [h("td", { class: "soft" }, `+${choice.pages.filter((/** @type {number} */ place) => !columns.includes(place)).length}`)] : [];
  const rows = choices.map((/** @type {any} */ choice) => h("tr", { class: choice.method === search.method ? "used" : "" },
    h("th", { scope: "row" }, choice.label), ...columns.map((place) => dot(choice, place)), ...rest(choice),
    h("td", {}, String(choice.pages.length)), h("td", {}, choice.tokens === null ? "–" : choice.tokens.toLocaleString("en")), h("td", {}, time(choice.seconds))));
  const table = h("table", { class: "methods small" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Page"), ...columns.map(head), ...(more ? [h("th", { scope: "col" }, "others")] : []),
      ...["pages", "tokens", "time"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, ...rows),
    h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "agreement"), ...columns.map(agreed), h("td", { colspan: 3 + (more ? 1 : 0) }))));
  return h("section", { "aria-label": "Methods side by side" },
    h("h2", { class: "label" }, "Methods side by side"),
    h("p", { class: "soft small" }, "Which pages each method takes for this question; the bars say how many of them agree. ", saved(search, choices)),
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table of methods" }, table));
}

/** @param {number} seconds */
const time = (seconds) => (seconds < 0.0995 ? `${(1000 * seconds).toFixed(seconds < 0.00995 ? 1 : 0)} ms` : `${seconds.toFixed(1)} s`);

/** What was saved against a fixed number of pages, in a sentence. @param {any} search @param {any[]} choices */
function saved(search, choices) {
  const fixed = choices[choices.length - 1];
  const own = choices.find((one) => one.method === search.method) ?? choices[0];
  const pages = fixed.pages.length - own.pages.length;
  if (own === fixed || pages === 0) return "";
  const [many, how] = [Math.abs(pages), pages > 0 ? "fewer" : "more"];
  const tokens = own.tokens === null || fixed.tokens === null ? "" : ` and about ${(100 * Math.round(Math.abs(fixed.tokens - own.tokens) / 100)).toLocaleString("en")} tokens`;
  return `Against a fixed top ${fixed.pages.length}, ${own.label} reads ${counted(many, "page")}${tokens} ${how}; choosing takes ${time(own.seconds)} instead of ${time(fixed.seconds)}.`;
}
