/** The views of a question, shared by the web page and the report. */

import { pageName } from "./answers.js";
import { accentColor, counted, fitted, h, place, svg } from "./dom.js";
import { SimilarityMap } from "./matrix.js";
import { MethodTable } from "./methods.js";

/** A passage is framed only on pages that are at least possible. */
const MIN_PROBABILITY = 0.15;
const FIXED_K = 10;
const NEAREST_SHOWN = 3;
/** Unlikely pages are folded in longer lists. */
const SHORT_LIST = 5;
/** Part of the accent color behind the word that contributed most, in percent; and what words such as "the" get of that. */
const FULL_SHADE = 40;
const STOP_WORD_SHADE = 0.15;

/**
 * The question, its words shaded by what they contributed.
 * @param {string} text @param {any[]} words @param {string | undefined} selected @param {(word: string | undefined) => void} select
 * @param {(word: string | undefined) => void} preview called while the pointer is over a word, and without one afterwards
 */
export const questionHeading = (text, words, selected, select, preview) =>
  h("h1", { class: "question" }, ...(words?.length ? shadedWords(words, selected, select, preview) : [text]));

/**
 * Words of the question as buttons that show where they match. Words such as "the" get little color: they contribute
 * everywhere.
 * @param {any[]} words @param {string | undefined} selected @param {(word: string | undefined) => void} select
 * @param {(word: string | undefined) => void} preview
 */
export function shadedWords(words, selected, select, preview) {
  const largest = Math.max(0, ...words.map((one) => (one.is_stop_word ? 0 : one.influence))) || 1;
  return words.flatMap((one, index) => {
    const isPressed = selected === String(index);
    const button = h("button", { "aria-pressed": isPressed, title: "Show where this word matches", onclick: () => select(isPressed ? undefined : String(index)), onmouseenter: () => preview(String(index)), onmouseleave: () => preview(undefined) }, one.text);
    const shade = one.is_stop_word ? STOP_WORD_SHADE * Math.min(1, one.influence) : one.influence / largest;
    button.style.background = `color-mix(in srgb, var(--accent) ${Math.round(FULL_SHADE * shade)}%, transparent)`;
    return [button, " "];
  });
}

/** @param {any} search */
export function summaryLine({ k, pages_searched: all, strength, summary }) {
  const saved = strength !== "none" && k < FIXED_K && all > FIXED_K ? ` · a fixed top ${FIXED_K} would read ${counted(FIXED_K - k, "more page")}` : "";
  return h("p", { class: "soft" }, `${summary[0].toUpperCase()}${summary.slice(1)}${saved}`);
}

/**
 * The chosen pages with their likelihood and best passage. Folded: unlikely pages of a long list, and the nearest ones if
 * none is likely to help.
 * @param {any} search @param {(hit: any) => string | undefined} picture address of a page's image @param {(hit: any) => boolean} isOpen @param {import("./answers.js").Open} open
 */
export function pageList(search, picture, isOpen, open) {
  const isFar = search.strength === "none";
  const items = (/** @type {any[]} */ hits) => hits.map((hit) => h("li", {}, h("button", { class: "hit", "aria-current": isOpen(hit), onclick: () => open(hit.document, hit.page) },
    h("img", { src: picture(hit), alt: "", loading: "lazy" }),
    h("span", {}, h("strong", {}, pageName(search, hit)), h("span", { class: "soft small" }, hit.label ? `, printed ${hit.label} ` : " "),
      hit.likelihood && !isFar ? bar(hit.probability) : null, hit.likelihood ? h("span", { class: "soft small" }, hit.likelihood) : null, h("div", { class: "small snippet" }, hit.snippet)))));
  const list = (/** @type {string} */ label, /** @type {any[]} */ hits) => h("ul", { class: "hits", "aria-label": label }, ...items(hits));
  if (isFar) return h("details", { class: "card nearest" }, h("summary", { class: "soft" }, "Closest pages"), list("Closest pages", search.pages.slice(0, NEAREST_SHOWN)));
  const isFolded = (/** @type {any} */ hit, /** @type {number} */ index) => search.pages.length > SHORT_LIST && index > 0 && hit.likelihood === "unlikely";
  const folded = search.pages.filter(isFolded);
  return h("div", { class: "card pages" }, list("Pages used", search.pages.filter((/** @type {any} */ hit, /** @type {number} */ index) => !isFolded(hit, index))),
    folded.length ? h("details", {}, h("summary", { class: "soft small" }, `${counted(folded.length, "more page")}, unlikely`), list("Unlikely pages", folded)) : null);
}

/** @param {number} probability */
function bar(probability) {
  const fill = h("i");
  fill.style.width = `${Math.round(100 * probability)}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, fill);
}

/**
 * Frames around the best passage of a page, if the page is likely enough.
 * @param {any} search @param {any} hit @returns {HTMLElement[]}
 */
export function passageFrames(search, hit) {
  if (!hit || search.strength === "none" || (hit.probability !== null && hit.probability < MIN_PROBABILITY)) return [];
  return hit.boxes.map((/** @type {number[]} */ box) => place(h("div", { class: "spot" }), box));
}

/**
 * Color the patches of a page by their weight, or by how well they match a word.
 * @param {HTMLCanvasElement} canvas @param {{boxes: number[][], weights: number[], cosines: number[][]}} patches @param {any} [word]
 */
export function paint(canvas, patches, word) {
  const context = canvas.getContext("2d");
  if (!context) return;
  context.clearRect(0, 0, canvas.width, canvas.height);
  const rows = (word?.vectors ?? []).map((/** @type {number} */ row) => patches.cosines[row]);
  const weights = word ? patches.weights.map((_, index) => Math.max(0, ...rows.map((/** @type {number[]} */ row) => row[index])) ** 3) : patches.weights;
  // Vectors without a box, such as special tokens, would dim everything else.
  const largest = Math.max(0, ...weights.filter((_, index) => patches.boxes[index].some(Boolean))) || 1;
  context.fillStyle = accentColor();
  patches.boxes.forEach(([left, top, right, bottom], index) => {
    context.globalAlpha = 0.55 * (weights[index] / largest);
    if (context.globalAlpha > 0.02) context.fillRect(left * canvas.width, top * canvas.height, (right - left) * canvas.width, (bottom - top) * canvas.height);
  });
}

/**
 * Why these pages, in one card: a sentence and a bar for each page, and what the method saw. Also returns the matrix, so
 * that it can follow the address.
 * @param {any} search @param {any} explanation @param {import("./answers.js").Open} open
 * @param {Omit<import("./matrix.js").Callbacks, "name" | "open">} callbacks
 * @param {boolean} [isUnfolded] whether to show what the method saw from the start
 */
export function reasons(search, explanation, open, callbacks, isUnfolded = false) {
  const key = (/** @type {any} */ page) => `${page.document}/${page.page}`;
  const used = new Set(search.pages.map(key));
  /** @type {any[]} */ const searched = explanation.pages;
  const documents = [...new Set(searched.map((page) => page.document))];
  // In a large library, the pages that were compared closely come by rank.
  const pages = documents.flatMap((id) => searched.filter((page) => page.document === id).sort((a, b) => a.page - b.page))
    .map((page, index) => ({ ...page, index, isUsed: used.has(key(page)) }));
  const ranked = [...pages].sort((a, b) => a.rank - b.rank);
  const chosen = new Set(ranked.flatMap((page, rank) => page.isUsed ? [rank] : []));
  // Other methods may rank pages in another order.
  const isFirst = ranked.slice(0, search.k).every((page) => page.isUsed);
  const framed = Math.min(isFirst ? search.k : explanation.k_star, explanation.similarity.length);
  const name = (/** @type {any} */ page) => pageName(search, page);
  const matrix = new SimilarityMap(ranked, explanation.similarity, chosen, framed, { ...callbacks, name, open });
  const methods = new MethodTable(search, explanation, name, open);
  const details = /** @type {HTMLDetailsElement} */ (h("details", { open: isUnfolded }, h("summary", { class: "soft" }, "Overlap, cost and other methods"),
    h("div", { class: "views" },
      h("figure", {}, matrix.element, h("figcaption", { class: "soft small" }, `How much pages overlap on your question. The square frames the pages ${isFirst ? "that were selected" : "that ViSAR would select"}. Point at a cell to compare two pages.`)),
      h("figure", {}, curve(explanation), h("figcaption", { class: "soft small" }, costSentence(explanation)))),
    explanation.similarity.length ? matrix.detail : null,
    methods.element));
  details.addEventListener("toggle", () => details.open && matrix.reveal());
  const element = h("div", { class: "card reasons" },
    h("h2", { class: "label" }, "Why these pages"),
    h("p", {}, reasonSentence(search, explanation)),
    fitted("strip", 600, (width) => strip(pages, width, name, open)),
    h("p", { class: "soft small" }, "Each bar is a page; its height shows relevance. The selected pages are colored."),
    details);
  return { element, matrix };
}

/** Explain the number of pages in a sentence. @param {any} search @param {any} explanation */
function reasonSentence({ k, strength, query, summary }, { cost, k_star: needed, choices }) {
  if (strength === "none") return "No page is likely to answer this. The colored bars come closest.";
  if (query.method !== choices[0].method) return `${summary[0].toUpperCase()}${summary.slice(1)}.`;
  if (cost.every((/** @type {number | null} */ value) => value === null)) return "No page stands out, so the best match is used.";
  if (k < needed) return `At least ${needed} pages share what the question needs. The best ${k} are used, the maximum you allow.`;
  return k === 1 ? "One page holds what the question needs. A second would add little." : `Together, ${k} pages hold what the question needs. One more would add little.`;
}

/** A bar for each page. @param {any[]} pages @param {number} width @param {(page: any) => string} name @param {import("./answers.js").Open} open */
function strip(pages, width, name, open) {
  const step = width / pages.length;
  const picture = svg("svg", { viewBox: `0 0 ${width} 74`, role: "img", "aria-label": `Relevance of ${counted(pages.length, "page")}` });
  const every = [1, 5, 10, 50, 100, 500, 1000].find((count) => count * step > 30) ?? 5000;
  for (const page of pages) {
    const height = Math.max(2, 48 * page.activity);
    picture.append(svg("rect", { class: page.isUsed ? "page chosen" : "page", x: (page.index * step).toFixed(2), y: 54 - height, width: Math.max(page.isUsed ? 2 : 0.6, step * 0.82).toFixed(2), height, onclick: () => open(page.document, page.page) },
      svg("title", {}, `${name(page)}, rank ${page.rank}`)));
  }
  const labels = /** @type {number[]} */ ([]);
  // Documents of one page would all have the same number.
  for (const page of pages.every((one) => one.page === 1) ? [] : [...pages.filter((one) => one.isUsed), ...pages.filter((one) => !one.isUsed && one.page % every === 0)]) {
    const x = (page.index + 0.41) * step;
    if (labels.some((other) => Math.abs(other - x) < 24)) continue;
    labels.push(x);
    picture.append(svg("text", { class: page.isUsed ? "chosen" : null, x, y: 70, "text-anchor": "middle" }, String(page.page)));
  }
  return picture;
}

/** Explain the cost curve in a sentence. @param {any} explanation */
function costSentence({ cost, k_star: chosen }) {
  const known = cost.filter((/** @type {number | null} */ value) => value !== null);
  if (!known.length) return "No page stands out, so the best match is used.";
  if (known.length === 1) return "There are too few relevant pages to draw a cost curve.";
  const lowest = cost.indexOf(Math.min(...known)) + 1;
  const start = `The cost of stopping is lowest after ${counted(lowest, "page")}`;
  if (chosen > lowest + 1) return `${start}. The pages have nothing in common, so all of them are used.`;
  if (chosen > lowest) return `${start}, but rises faster afterwards than it fell before, so one more page is used.`;
  return `${start}: they agree with each other, and the others add little.`;
}

/** The cost of each number of pages, and where other methods stop. @param {any} explanation */
function curve(explanation) {
  const known = explanation.cost.map((/** @type {number | null} */ value, /** @type {number} */ index) => [index + 1, value]).filter((/** @type {any} */ [, value]) => value !== null);
  if (known.length < 2) return null;
  const values = known.map((/** @type {any} */ [, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const last = Math.max(known.at(-1)[0], explanation.k_star);
  const x = (/** @type {number} */ k) => 12 + (296 * (k - 1)) / Math.max(1, last - 1);
  const y = (/** @type {number} */ value) => 176 - (148 * (value - low)) / (high - low || 1);
  const points = known.map((/** @type {any} */ [k, value]) => `${x(k).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const chosen = explanation.k_star;
  const cost = explanation.cost[chosen - 1];
  // Other methods are listed below the axis, one line for each number of pages.
  const others = new Map();
  for (const one of explanation.choices) {
    const k = one.pages.length;
    if (k !== chosen) others.set(k, [...(others.get(k) ?? []), one.label]);
  }
  const stops = [...others].sort(([a], [b]) => b - a).map(([k, labels]) => ({ k, text: `${labels.join(", ")}${labels.every((/** @type {string} */ label) => label.endsWith(String(k))) ? "" : `: ${k}`}` }));
  const height = 204 + 16 * stops.length;
  const picture = svg("svg", { viewBox: `0 0 320 ${height}`, role: "img", "aria-label": `Cost by number of pages; k* is ${chosen}. Other methods stop at: ${stops.map((one) => one.text).join("; ")}` });
  stops.forEach(({ k, text }, row) => {
    const [at, level] = [x(Math.min(k, last)), 210 + 16 * row];
    const end = at > 160;
    if (k <= last) picture.append(svg("line", { x1: at, x2: at, y1: 176, y2: level + 2, stroke: "var(--soft)", "stroke-dasharray": "1 3" }));
    picture.append(svg("text", { x: end ? at - 5 : at + 5, y: level, "text-anchor": end ? "end" : "start" }, k > last ? `${text} →` : text));
  });
  const right = x(chosen) > 260;
  picture.append(
    svg("line", { x1: 12, x2: 308, y1: 176, y2: 176, stroke: "var(--line)" }),
    svg("line", { x1: x(chosen), x2: x(chosen), y1: 16, y2: 176, stroke: "var(--accent)", "stroke-dasharray": "4 3" }),
    svg("polyline", { points, fill: "none", stroke: "var(--ink)", "stroke-width": 1.6 }),
    svg("text", { x: x(chosen) + (right ? -6 : 6), y: 14, class: "chosen", "text-anchor": right ? "end" : "start" }, `k* = ${chosen}`),
    svg("text", { x: 12, y: 191, "text-anchor": "middle" }, "1"),
    svg("text", { x: x(last), y: 191, "text-anchor": "middle" }, String(last)),
    svg("text", { x: 160, y: 191, "text-anchor": "middle" }, "pages used"));
  if (cost !== null && cost !== undefined) picture.append(svg("circle", { cx: x(chosen), cy: y(cost), r: 4, fill: "var(--accent)" }));
  return picture;
}
