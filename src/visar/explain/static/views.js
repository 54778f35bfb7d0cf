/** The views of a question: the page, a report and a notebook show the same. */

import { counted, h, svg } from "./dom.js";
import { SimilarityMap } from "./matrix.js";
import { methodTable } from "./methods.js";

/** @typedef {(document: string, page: number) => void} Open called when a page is chosen in a view */

/** A passage is marked on its page only where the page is at least possible. */
const TRUSTED = 0.15;

/**
 * The question, its words shaded by their influence.
 * @param {string} text @param {any[]} words @param {string | undefined} chosen @param {(word: string | undefined) => void} choose
 * @param {(word: string | undefined) => void} peek called while a word is pointed at, and without one afterwards
 */
export function question(text, words, chosen, choose, peek) {
  if (!words?.length) return h("h1", { class: "asked" }, text);
  return h("h1", { class: "asked" }, ...words.flatMap((one, place) => {
    const pressed = chosen === String(place);
    const button = h("button", { "aria-pressed": pressed, title: "Show where this word matches", onclick: () => choose(pressed ? undefined : String(place)), onmouseenter: () => peek(String(place)), onmouseleave: () => peek(undefined) }, one.text);
    button.style.background = `color-mix(in srgb, var(--accent) ${Math.round(40 * one.influence)}%, transparent)`;
    return [button, " "];
  }));
}

/** @param {any} search @param {any} answer @param {Open} open */
export function answered(search, answer, open) {
  if (!answer.found && !answer.model) {
    const [nearest] = search.pages;
    const several = search.documents.length > 1;
    const where = several ? `these ${search.documents.length} documents` : search.documents[0].name;
    return h("div", { class: "card" }, h("p", { class: "text" }, `Nothing in ${where} speaks of this.`),
      h("p", { class: "soft" }, `What comes nearest is page ${nearest.page}${several ? ` of ${nearest.name}` : ""}, and it is unlikely to help.`));
  }
  const cite = (/** @type {any} */ one) => {
    const name = search.documents.length > 1 ? `${search.documents.find((/** @type {any} */ known) => known.id === one.document)?.name ?? ""}, ` : "";
    return h("button", { class: "cite", onclick: () => open(one.document, one.page) }, `${name}p. ${one.page}`);
  };
  if (answer.model) {
    return h("div", { class: "card" }, h("p", { class: "text" }, answer.text || `${answer.model} does not find the answer on these pages.`, ...answer.citations.filter((/** @type {any} */ one) => one.was_given).map(cite)),
      h("p", { class: "soft small" }, `Written by ${answer.model} from these pages.`));
  }
  const quotes = answer.passages.map((/** @type {any} */ one) => h("p", { class: "text" }, ...marked(one.text, one.answer), cite(one)));
  const weak = search.strength === "weak" ? h("p", { class: "small bad" }, "A weak match: the answer may not be in these documents.") : null;
  return h("div", { class: "card" }, weak, ...quotes, h("p", { class: "soft small" }, "Quoted from the pages. No language model was asked."));
}

/** @param {string} text @param {[number, number] | null} span */
function marked(text, span) {
  if (!span) return [text];
  const letters = [...text];
  const [first, last] = span;
  return [letters.slice(0, first).join(""), h("mark", {}, letters.slice(first, last).join("")), letters.slice(last).join("")];
}

/** @param {any} search */
export function sentence(search) {
  const { k, pages_searched: all, strength, summary } = search;
  const saved = strength !== "none" && k < 10 && all > 10 ? ` · a fixed top 10 would read ${counted(10 - k, "page")} more` : "";
  return h("p", { class: "soft" }, `${summary[0].toUpperCase()}${summary.slice(1)}${saved}`);
}

/**
 * The chosen pages with their likelihood and what matches there.
 * @param {any} search @param {(hit: any) => string} picture where each page's picture is @param {(hit: any) => boolean} isShown @param {Open} open
 */
export function hits(search, picture, isShown, open) {
  const several = search.documents.length > 1;
  const far = search.strength === "none";
  const items = search.pages.map((/** @type {any} */ hit) => {
    const chance = hit.likelihood ? [far ? " " : bar(hit.probability), h("span", { class: "soft small" }, hit.likelihood)] : [];
    const label = hit.label ? `, printed ${hit.label}` : "";
    return h("li", {}, h("button", { class: "hit", "aria-current": isShown(hit), onclick: () => open(hit.document, hit.page) },
      h("img", { src: picture(hit), alt: "", loading: "lazy" }),
      h("span", {}, h("strong", {}, `${several ? `${hit.name}, page` : "Page"} ${hit.page}`), h("span", { class: "soft small" }, label), ...chance, h("div", { class: "small" }, hit.snippet))));
  });
  return h("ul", { class: `card hits ${far ? "nearest" : ""}`, "aria-label": far ? "What comes nearest" : "The pages it rests on" }, ...items);
}

/** @param {number} probability */
function bar(probability) {
  const fill = h("i");
  fill.style.width = `${Math.round(100 * probability)}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, fill);
}

/**
 * Frames around the passage of a page, if the page is likely enough to trust it.
 * @param {any} search @param {any} hit @returns {HTMLElement[]}
 */
export function spots(search, hit) {
  if (!hit || search.strength === "none" || (hit.probability !== null && hit.probability < TRUSTED)) return [];
  return hit.boxes.map((/** @type {number[]} */ [left, top, right, bottom]) => {
    const spot = h("div", { class: "spot" });
    Object.assign(spot.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * (right - left)}%`, height: `${100 * (bottom - top)}%` });
    return spot;
  });
}

/**
 * Colour the patches of a page by their weight, or by how well they match a word.
 * @param {HTMLCanvasElement} canvas @param {{boxes: number[][], weights: number[], cosines: number[][]}} patches @param {any} [word]
 */
export function paint(canvas, patches, word) {
  const context = canvas.getContext("2d");
  if (!context) return;
  context.clearRect(0, 0, canvas.width, canvas.height);
  const rows = (word?.vectors ?? []).map((/** @type {number} */ row) => patches.cosines[row]);
  const weights = word ? patches.weights.map((_, place) => Math.max(0, ...rows.map((/** @type {number[]} */ row) => row[place])) ** 3) : patches.weights;
  // What has no place on the page is no measure for what has one.
  const most = Math.max(0, ...weights.filter((_, place) => patches.boxes[place].some(Boolean))) || 1;
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
  patches.boxes.forEach(([left, top, right, bottom], place) => {
    context.globalAlpha = 0.55 * (weights[place] / most);
    if (context.globalAlpha > 0.02) context.fillRect(left * canvas.width, top * canvas.height, (right - left) * canvas.width, (bottom - top) * canvas.height);
  });
}

/**
 * Why these pages, in one card; the map is given back to be told what its address says.
 * @param {any} search @param {any} explanation @param {Float32Array} matrix @param {Open} open
 * @param {Omit<import("./matrix.js").Places, "name" | "open">} places
 */
export function reasons(search, explanation, matrix, open, places) {
  const best = explanation.pages.map((/** @type {any} */ page, /** @type {number} */ place) => ({ ...page, place })).sort((/** @type {any} */ a, /** @type {any} */ b) => a.rank - b.rank);
  const taken = new Set(search.pages.map((/** @type {any} */ hit) => `${hit.document}/${hit.page}`));
  const chosen = new Set(best.flatMap((/** @type {any} */ one, /** @type {number} */ rank) => taken.has(`${one.document}/${one.page}`) ? [rank] : []));
  // Other methods may rank pages in another order.
  const isFirst = best.slice(0, search.k).every((/** @type {any} */ _, /** @type {number} */ rank) => chosen.has(rank));
  const framed = Math.min(isFirst ? search.k : explanation.k_star, explanation.matrix_size);
  const names = Object.fromEntries(search.documents.map((/** @type {any} */ one) => [one.id, search.documents.length > 1 ? `${one.name}, page` : "Page"]));
  const name = (/** @type {any} */ page) => `${names[page.document]} ${page.page}`;
  const map = new SimilarityMap(best, matrix, explanation.matrix_size, chosen, framed, { ...places, name, open });
  const element = h("div", { class: "card reasons" },
    h("h2", { class: "label" }, "Why these pages"),
    h("p", { class: "soft small" }, "Each bar is a page: how much of it speaks of the question. The chosen ones are coloured."),
    strip(search, explanation, open),
    h("div", { class: "views" },
      h("figure", {}, map.element, h("figcaption", { class: "soft small" }, `How alike pages are in what you asked. The square is what ${isFirst ? "was taken" : "ViSAR would take"}. Point at a cell to compare two pages.`)),
      h("figure", {}, curve(explanation), h("figcaption", { class: "soft small" }, aboutCost(explanation)))),
    ...(explanation.matrix_size ? [map.detail] : []),
    methodTable(search, explanation, name, open));
  return { element, map };
}

/** @param {any} search @param {any} explanation @param {Open} open */
function strip(search, explanation, open) {
  const chosen = new Set(search.pages.map((/** @type {any} */ hit) => `${hit.document}/${hit.page}`));
  const names = Object.fromEntries(search.documents.map((/** @type {any} */ one) => [one.id, search.documents.length > 1 ? `${one.name}, page` : "Page"]));
  const { pages } = explanation;
  const width = 600;
  const step = width / pages.length;
  const picture = svg("svg", { viewBox: `0 0 ${width} 74`, role: "img", "aria-label": `The activity of ${pages.length} pages` });
  const labels = /** @type {{x: number, text: string, taken: boolean}[]} */ ([]);
  const every = [1, 5, 10, 50, 100, 500, 1000].find((count) => count * step > 30) ?? 5000;
  pages.forEach((/** @type {any} */ one, /** @type {number} */ place) => {
    const taken = chosen.has(`${one.document}/${one.page}`);
    const height = Math.max(2, 48 * one.activity);
    const x = place * step;
    const bar = svg("rect", { class: taken ? "page chosen" : "page", x: x.toFixed(2), y: 54 - height, width: Math.max(taken ? 2 : 0.6, step * 0.82).toFixed(2), height, onclick: () => open(one.document, one.page) });
    bar.append(svg("title", {}, `${names[one.document]} ${one.page}, rank ${one.rank}`));
    picture.append(bar);
    if (taken || one.page % every === 0) labels.push({ x: x + step * 0.41, text: String(one.page), taken });
  });
  const written = /** @type {number[]} */ ([]);
  for (const { x, text, taken } of labels.sort((a, b) => Number(b.taken) - Number(a.taken))) {
    if (written.some((other) => Math.abs(other - x) < 24)) continue;
    written.push(x);
    picture.append(svg("text", { ...(taken ? { class: "chosen" } : {}), x, y: 70, "text-anchor": "middle" }, text));
  }
  return picture;
}

/** The curve in a sentence. @param {any} explanation */
function aboutCost({ cost, k_star: chosen }) {
  const known = cost.filter((/** @type {number | null} */ value) => value !== null);
  if (!known.length) return "No page stands out: the best by late interaction is taken.";
  if (known.length === 1) return "Too few pages speak of this for a curve of costs.";
  const lowest = cost.indexOf(Math.min(...known)) + 1;
  const least = "The cost of stopping after so many pages: lowest at";
  if (chosen > lowest + 1) return `${least} ${lowest}. The pages share nothing, so all of them count.`;
  if (chosen > lowest) return `${least} ${lowest}. Beyond it rises faster than it fell before, so one more is taken.`;
  return `${least} ${chosen}, where the pages taken agree and the others add little.`;
}

/** @param {any} explanation */
function curve(explanation) {
  const known = explanation.cost.map((/** @type {number | null} */ value, /** @type {number} */ place) => [place + 1, value]).filter((/** @type {any} */ [, value]) => value !== null);
  if (known.length < 2) return "";
  const values = known.map((/** @type {any} */ [, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const last = Math.max(known.at(-1)[0], explanation.k_star);
  const x = (/** @type {number} */ k) => 12 + (296 * (k - 1)) / Math.max(1, last - 1);
  const y = (/** @type {number} */ value) => 176 - (148 * (value - low)) / (high - low || 1);
  const points = known.map((/** @type {any} */ [k, value]) => `${x(k).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const chosen = explanation.k_star;
  const cost = explanation.cost[chosen - 1];
  // Where others would stop: below the axis, each number of pages on a line of its own.
  const others = new Map();
  for (const one of explanation.choices) {
    const k = one.pages.length;
    if (k !== chosen) others.set(k, [...(others.get(k) ?? []), one.label]);
  }
  const stops = [...others].sort(([a], [b]) => b - a).map(([k, labels]) => ({ k, text: `${labels.join(", ")}${labels.every((/** @type {string} */ label) => label.endsWith(String(k))) ? "" : `: ${k}`}` }));
  const height = 204 + 16 * stops.length;
  const picture = svg("svg", { viewBox: `0 0 320 ${height}`, role: "img", "aria-label": `The cost of each number of pages; k* is ${chosen}. Others would stop at: ${stops.map((one) => one.text).join("; ")}` });
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
    svg("text", { x: 160, y: 191, "text-anchor": "middle" }, "pages taken"));
  if (cost !== null && cost !== undefined) picture.append(svg("circle", { cx: x(chosen), cy: y(cost), r: 4, fill: "var(--accent)" }));
  return picture;
}
