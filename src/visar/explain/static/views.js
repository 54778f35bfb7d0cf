/** The views of a question, shared by the web page and the report. */

import { counted, h, place, svg } from "./dom.js";
import { SimilarityMap } from "./matrix.js";
import { methodTable } from "./methods.js";

/** @typedef {(document: string, page: number) => void} Open called when a page is selected in a view */

/** @typedef {(page: any) => string | undefined} Picture returns the address of a page's picture, if there is one */

/** A passage is framed only on pages that are at least possible. */
const MIN_PROBABILITY = 0.15;
const FIXED_K = 10;
const NEAREST_SHOWN = 3;
/** Space around a table that is cut out of its page, as a fraction of the page. */
const CUT_MARGIN = 0.012;
/** Width of a whole page, in pixels, at the scale of a cut-out. */
const CUT_SCALE = 900;

/** @param {any} search @param {any} page */
export const pageName = (search, page) => `${search.documents.length > 1 ? `${nameOf(search, page.document)}, page` : "Page"} ${page.page}`;

/** @param {any} search @param {string} id */
const nameOf = (search, id) => search.documents.find((/** @type {any} */ one) => one.id === id)?.name ?? "";

/**
 * The question, its words shaded by their influence.
 * @param {string} text @param {any[]} words @param {string | undefined} selected @param {(word: string | undefined) => void} select
 * @param {(word: string | undefined) => void} preview called while the pointer is over a word, and without one afterwards
 */
export function questionHeading(text, words, selected, select, preview) {
  if (!words?.length) return h("h1", { class: "question" }, text);
  return h("h1", { class: "question" }, ...words.flatMap((one, index) => {
    const isPressed = selected === String(index);
    const button = h("button", { "aria-pressed": isPressed, title: "Show where this word matches", onclick: () => select(isPressed ? undefined : String(index)), onmouseenter: () => preview(String(index)), onmouseleave: () => preview(undefined) }, one.text);
    button.style.background = `color-mix(in srgb, var(--accent) ${Math.round(40 * one.influence)}%, transparent)`;
    return [button, " "];
  }));
}

/** A button that opens a page. @param {any} search @param {any} page @param {Open} open */
function citation(search, page, open) {
  const name = search.documents.length > 1 ? `${nameOf(search, page.document)}, ` : "";
  return h("button", { class: "cite", onclick: () => open(page.document, page.page) }, `${name}p. ${page.page}`);
}

/** @param {any} search @param {any} answer @param {Open} open @param {Picture} picture */
export function answerCard(search, answer, open, picture) {
  const { text, citations, generation } = answer;
  if (!generation) return quoteCard(search, text ? answer.passages : [], open, picture);
  const unknown = citations.filter((/** @type {any} */ one) => one.document === null).map((/** @type {any} */ one) => one.label);
  return h("div", { class: "card" },
    h("p", { class: "text" }, text || `${generation.model} couldn't find the answer on these pages.`,
      ...citations.map((/** @type {any} */ one) => (one.document === null ? h("span", { class: "cite unknown" }, `p. ${one.label}`) : citation(search, one, open)))),
    unknown.length ? h("p", { class: "small bad" }, `${unknown.length > 1 ? "Pages" : "Page"} ${unknown.join(", ")} ${unknown.length > 1 ? "were" : "was"} not among the pages it was given.`) : null,
    generation.finish === "complete" ? null : h("p", { class: "small bad" }, generation.finish === "length" ? "The answer reached its maximum length." : "The answer broke off before it was complete."),
    h("p", { class: "soft small" }, `Written by ${generation.model} from these pages.`));
}

/**
 * Quoted passages, or the closest page if there are none.
 * @param {any} search @param {any[]} passages @param {Open} open @param {Picture} picture
 */
export function quoteCard(search, passages, open, picture) {
  const several = search.documents.length > 1;
  if (!passages.length) {
    const [closest] = search.pages;
    const isBlank = search.documents.every((/** @type {any} */ one) => one.no_text);
    return h("div", { class: "card" },
      h("p", { class: "text" }, `I couldn't find this in ${several ? `these ${search.documents.length.toLocaleString("en")} documents` : search.documents[0].name}${isBlank ? ": no text was found on any page" : ""}.`),
      closest && !isBlank ? h("p", { class: "soft" }, `Closest page: ${closest.page}${several ? ` of ${closest.name}` : ""} (probably not relevant).`) : null);
  }
  return h("div", { class: "card" },
    search.strength === "weak" ? h("p", { class: "small bad" }, `Weak match: the answer may not be in ${several ? "these documents" : "this document"}.`) : null,
    ...joinTables(passages).map((one) => (one.cells.length ? cutOut(search, one, open, picture) : quotation(search, one, open))),
    h("p", { class: "soft small" }, "Quoted directly from the pages."));
}

/** Join rows of tables on the same page, so that they are shown in one picture. @param {any[]} passages */
function joinTables(passages) {
  /** @type {Map<unknown, any>} */ const joined = new Map();
  for (const one of passages) {
    const key = one.cells.length ? `${one.document}/${one.page}` : one;
    const before = joined.get(key);
    joined.set(key, before ? { ...before, text: `${before.text}\n${one.text}`, boxes: [...before.boxes, ...one.boxes], cells: [...before.cells, ...one.cells] } : one);
  }
  return [...joined.values()];
}

/** @param {any} search @param {any} passage @param {Open} open */
const quotation = (search, passage, open) => h("p", { class: "text" }, passage.text, citation(search, passage, open));

/**
 * A quoted table, cut out of the picture of its page, with the cells that answer framed; its text if there is no picture.
 * @param {any} search @param {any} passage @param {Open} open @param {Picture} picture
 */
function cutOut(search, passage, open, picture) {
  const source = picture(passage);
  if (!source) return quotation(search, passage, open);
  const sides = (/** @type {number} */ side) => passage.boxes.map((/** @type {number[]} */ box) => box[side]);
  const [left, top] = [0, 1].map((side) => Math.max(0, Math.min(...sides(side)) - CUT_MARGIN));
  const [right, bottom] = [2, 3].map((side) => Math.min(1, Math.max(...sides(side)) + CUT_MARGIN));
  const [width, height] = [right - left, bottom - top];
  const inside = (/** @type {number[]} */ box) => box.map((value, side) => (side % 2 ? (value - top) / height : (value - left) / width));
  const image = /** @type {HTMLImageElement} */ (place(h("img", { alt: passage.text }), inside([0, 0, 1, 1])));
  const answers = passage.cells.filter((/** @type {any} */ cell) => cell.answer);
  const frame = h("div", { class: "frame" }, image, ...answers.map((/** @type {any} */ cell) => place(h("div", { class: "spot" }), inside(cell.box))));
  frame.style.width = `min(100%, ${Math.round(CUT_SCALE * width)}px)`;
  // The shape of the page is known when its picture is there.
  const shape = (/** @type {number} */ ratio) => { frame.style.aspectRatio = String((ratio * width) / height); };
  shape(210 / 297);
  const figure = h("figure", { class: "cut" }, frame, h("figcaption", {}, citation(search, passage, open)));
  image.addEventListener("load", () => shape(image.naturalWidth / image.naturalHeight));
  image.addEventListener("error", () => figure.replaceWith(quotation(search, passage, open)));
  image.src = source;
  return figure;
}

/** @param {any} search */
export function summaryLine({ k, pages_searched: all, strength, summary }) {
  const saved = strength !== "none" && k < FIXED_K && all > FIXED_K ? ` · a fixed top ${FIXED_K} would read ${counted(FIXED_K - k, "more page")}` : "";
  return h("p", { class: "soft" }, `${summary[0].toUpperCase()}${summary.slice(1)}${saved}`);
}

/**
 * The chosen pages with their likelihood and best passage; the nearest ones, folded, if none is likely to help.
 * @param {any} search @param {(hit: any) => string | undefined} picture address of a page's image @param {(hit: any) => boolean} isOpen @param {Open} open
 */
export function pageList(search, picture, isOpen, open) {
  const isFar = search.strength === "none";
  const items = search.pages.slice(0, isFar ? NEAREST_SHOWN : undefined).map((/** @type {any} */ hit) => h("li", {}, h("button", { class: "hit", "aria-current": isOpen(hit), onclick: () => open(hit.document, hit.page) },
    h("img", { src: picture(hit), alt: "", loading: "lazy" }),
    h("span", {}, h("strong", {}, pageName(search, hit)), h("span", { class: "soft small" }, hit.label ? `, printed ${hit.label} ` : " "),
      hit.likelihood && !isFar ? bar(hit.probability) : null, hit.likelihood ? h("span", { class: "soft small" }, hit.likelihood) : null, h("div", { class: "small" }, hit.snippet)))));
  if (!isFar) return h("ul", { class: "card hits", "aria-label": "Pages used" }, ...items);
  return h("details", { class: "card nearest" }, h("summary", { class: "soft" }, "Closest pages"), h("ul", { class: "hits", "aria-label": "Closest pages" }, ...items));
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
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
  patches.boxes.forEach(([left, top, right, bottom], index) => {
    context.globalAlpha = 0.55 * (weights[index] / largest);
    if (context.globalAlpha > 0.02) context.fillRect(left * canvas.width, top * canvas.height, (right - left) * canvas.width, (bottom - top) * canvas.height);
  });
}

/**
 * Why these pages, in one card. Also returns the matrix, so that it can follow the address.
 * @param {any} search @param {any} explanation @param {Open} open
 * @param {Omit<import("./matrix.js").Callbacks, "name" | "open">} callbacks
 */
export function reasons(search, explanation, open, callbacks) {
  const key = (/** @type {any} */ page) => `${page.document}/${page.page}`;
  const used = new Set(search.pages.map(key));
  const pages = explanation.pages.map((/** @type {any} */ page, /** @type {number} */ index) => ({ ...page, index, isUsed: used.has(key(page)) }));
  const ranked = [...pages].sort((a, b) => a.rank - b.rank);
  const chosen = new Set(ranked.flatMap((page, rank) => page.isUsed ? [rank] : []));
  // Other methods may rank pages in another order.
  const isFirst = ranked.slice(0, search.k).every((page) => page.isUsed);
  const framed = Math.min(isFirst ? search.k : explanation.k_star, explanation.similarity.length);
  const name = (/** @type {any} */ page) => pageName(search, page);
  const matrix = new SimilarityMap(ranked, explanation.similarity, chosen, framed, { ...callbacks, name, open });
  const element = h("div", { class: "card reasons" },
    h("h2", { class: "label" }, "Why these pages"),
    h("p", { class: "soft small" }, "Each bar is a page; its height shows relevance. The selected pages are colored."),
    strip(pages, name, open),
    h("div", { class: "views" },
      h("figure", {}, matrix.element, h("figcaption", { class: "soft small" }, `How much pages overlap on your question. The square frames the pages ${isFirst ? "that were selected" : "that ViSAR would select"}. Point at a cell to compare two pages.`)),
      h("figure", {}, curve(explanation), h("figcaption", { class: "soft small" }, costSentence(explanation)))),
    explanation.similarity.length ? matrix.detail : null,
    methodTable(search, explanation, name, open));
  return { element, matrix };
}

/** A bar for each page. @param {any[]} pages @param {(page: any) => string} name @param {Open} open */
function strip(pages, name, open) {
  const width = 600;
  const step = width / pages.length;
  const picture = svg("svg", { viewBox: `0 0 ${width} 74`, role: "img", "aria-label": `Relevance of ${counted(pages.length, "page")}` });
  const every = [1, 5, 10, 50, 100, 500, 1000].find((count) => count * step > 30) ?? 5000;
  for (const page of pages) {
    const height = Math.max(2, 48 * page.activity);
    picture.append(svg("rect", { class: page.isUsed ? "page chosen" : "page", x: (page.index * step).toFixed(2), y: 54 - height, width: Math.max(page.isUsed ? 2 : 0.6, step * 0.82).toFixed(2), height, onclick: () => open(page.document, page.page) },
      svg("title", {}, `${name(page)}, rank ${page.rank}`)));
  }
  const labels = /** @type {number[]} */ ([]);
  for (const page of [...pages.filter((one) => one.isUsed), ...pages.filter((one) => !one.isUsed && one.page % every === 0)]) {
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
