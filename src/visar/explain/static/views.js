/** The views of a question: the page, a report and a notebook show the same. */

import { counted, h, svg } from "./dom.js";

/** @typedef {(document: string, page: number) => void} Open called when a page is chosen in a view */

const METHODS = { visar: "ViSAR", "visar-approx": "ViSAR, approximated", "largest-gap": "Largest-Gap", "score-cluster": "Score-Cluster", calibrated: "Calibrated" };
/** A passage is marked on its page only where the page is at least possible. */
const TRUSTED = 0.15;

/**
 * The question, its words shaded by their influence.
 * @param {string} text @param {any[]} words @param {string | undefined} chosen @param {(word: string | undefined) => void} choose
 */
export function question(text, words, chosen, choose) {
  if (!words?.length) return h("h1", { class: "asked" }, text);
  return h("h1", { class: "asked" }, ...words.flatMap((one, place) => {
    const pressed = chosen === String(place);
    const button = h("button", { "aria-pressed": pressed, title: "Show where this word matches", onclick: () => choose(pressed ? undefined : String(place)) }, one.text);
    button.style.background = `color-mix(in srgb, var(--accent) ${Math.round(40 * one.influence)}%, transparent)`;
    return [button, " "];
  }));
}

/** @param {any} search @param {any} answer @param {Open} open */
export function answered(search, answer, open) {
  if (!answer.found) {
    return h("div", { class: "card" }, h("p", { class: "text" }, "Nothing in these documents speaks of this."),
      h("p", { class: "soft small" }, "What comes nearest is below, and is unlikely to help."));
  }
  const cite = (/** @type {any} */ one) => {
    const name = search.documents.length > 1 ? `${search.documents.find((/** @type {any} */ known) => known.id === one.document)?.name ?? ""}, ` : "";
    return h("button", { class: "cite", onclick: () => open(one.document, one.page) }, `${name}p. ${one.page}`);
  };
  if (answer.model) {
    return h("div", { class: "card" }, h("p", { class: "text" }, answer.text, ...answer.citations.filter((/** @type {any} */ one) => one.was_given).map(cite)),
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
  const saved = 10 - k > 0 && all > 10 ? ` · a fixed top 10 would read ${counted(10 - k, "page")} more` : "";
  return h("p", { class: "soft" }, strength === "none" ? `The nearest ${counted(k, "page")} of ${all}.` : `${summary}${saved}`);
}

/**
 * The chosen pages with their likelihood and what matches there.
 * @param {any} search @param {(hit: any) => string} picture where each page's picture is @param {(hit: any) => boolean} isShown @param {Open} open
 */
export function hits(search, picture, isShown, open) {
  const several = search.documents.length > 1;
  const items = search.pages.map((/** @type {any} */ hit) => {
    const chance = hit.likelihood ? [bar(hit.probability), h("span", { class: "soft small" }, hit.likelihood)] : [];
    const label = hit.label ? `, printed ${hit.label}` : "";
    return h("li", {}, h("button", { class: "hit", "aria-current": isShown(hit), onclick: () => open(hit.document, hit.page) },
      h("img", { src: picture(hit), alt: "", loading: "lazy" }),
      h("span", {}, h("strong", {}, `${several ? `${hit.name}, page` : "Page"} ${hit.page}`), h("span", { class: "soft small" }, label), ...chance, h("div", { class: "small" }, hit.snippet))));
  });
  const far = search.strength === "none";
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
 * Why these pages, in one card.
 * @param {any} search @param {any} explanation @param {Float32Array} matrix @param {Open} open
 */
export function reasons(search, explanation, matrix, open) {
  const best = [...explanation.pages].sort((a, b) => a.rank - b.rank);
  const taken = new Set(search.pages.map((/** @type {any} */ hit) => `${hit.document}/${hit.page}`));
  // Other methods may rank pages in another order.
  const isFirst = best.slice(0, search.k).every((one) => taken.has(`${one.document}/${one.page}`));
  const framed = Math.min(isFirst ? search.k : explanation.k_star, explanation.matrix_size);
  return h("div", { class: "card reasons" },
    h("h2", { class: "label" }, "Why these pages"),
    h("p", { class: "soft small" }, "Each bar is a page: how much of it speaks of the question. The chosen ones are coloured."),
    strip(search, explanation, open),
    h("div", { class: "views" },
      h("figure", {}, heatmap(best, framed, matrix, explanation.matrix_size, open), h("figcaption", { class: "soft small" }, `How alike pages are in what you asked, best first. The square is what ${isFirst ? "was taken" : "ViSAR would take"}.`)),
      h("figure", {}, curve(explanation), h("figcaption", { class: "soft small" }, aboutCost(explanation)))),
    h("div", { class: "cuts small" }, h("span", { class: "soft" }, "Pages by method:"), ...Object.entries(explanation.cuts).map(([name, k]) =>
      h("span", {}, `${METHODS[/** @type {keyof METHODS} */ (name)] ?? name} `, h("strong", {}, String(k))))));
}

/** @param {any} search @param {any} explanation @param {Open} open */
function strip(search, explanation, open) {
  const chosen = new Set(search.pages.map((/** @type {any} */ hit) => `${hit.document}/${hit.page}`));
  const names = Object.fromEntries(search.documents.map((/** @type {any} */ one) => [one.id, search.documents.length > 1 ? `${one.name}, page` : "Page"]));
  const { pages } = explanation;
  const width = 860;
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

/** @param {any[]} best @param {number} framed @param {Float32Array} matrix @param {number} size @param {Open} open */
function heatmap(best, framed, matrix, size, open) {
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { width: size || 1, height: size || 1, role: "img", "aria-label": `Similarity of the best ${size} pages` }));
  const context = canvas.getContext("2d");
  if (!context || !size) return canvas;
  const ink = getComputedStyle(canvas.ownerDocument.documentElement).getPropertyValue("--accent").trim();
  context.fillStyle = ink;
  const largest = matrix.reduce((most, value) => Math.max(most, value), 0) || 1;
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column < size; column += 1) {
      context.globalAlpha = matrix[row * size + column] / largest;
      context.fillRect(column, row, 1, 1);
    }
  }
  const box = h("div", { class: "matrix" });
  const frame = h("div", { class: "spot" });
  const share = (100 * framed) / size;
  Object.assign(frame.style, { left: "0", top: "0", width: `${share}%`, height: `${share}%` });
  box.style.position = "relative";
  const said = h("p", { class: "small soft", "aria-live": "polite" }, "\u00a0");
  const at = (/** @type {MouseEvent} */ event) => [event.offsetX / canvas.clientWidth, event.offsetY / canvas.clientHeight].map((part) => Math.min(size - 1, Math.max(0, Math.floor(part * size))));
  canvas.addEventListener("mousemove", (event) => {
    const [column, row] = at(event);
    said.textContent = row === column ? `Page ${best[row].page} with itself` : `Page ${best[row].page} with page ${best[column].page}: ${Math.round((100 * matrix[row * size + column]) / largest)} %`;
  });
  canvas.addEventListener("click", (event) => {
    const page = best[at(event)[1]];
    open(page.document, page.page);
  });
  box.append(canvas, frame);
  return h("div", {}, box, said);
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
  const picture = svg("svg", { viewBox: "0 0 420 260", role: "img", "aria-label": `The cost of each number of pages; k* is ${explanation.k_star}` });
  const values = known.map((/** @type {any} */ [, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const last = Math.max(known.at(-1)[0], explanation.k_star);
  const x = (/** @type {number} */ k) => 20 + (380 * (k - 1)) / Math.max(1, last - 1);
  const y = (/** @type {number} */ value) => 220 - (190 * (value - low)) / (high - low || 1);
  const points = known.map((/** @type {any} */ [k, value]) => `${x(k).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const chosen = explanation.k_star;
  const cost = explanation.cost[chosen - 1];
  picture.append(
    svg("line", { x1: 20, x2: 400, y1: 220, y2: 220, stroke: "var(--line)" }),
    svg("line", { x1: x(chosen), x2: x(chosen), y1: 20, y2: 220, stroke: "var(--accent)", "stroke-dasharray": "4 3" }),
    svg("polyline", { points, fill: "none", stroke: "var(--ink)", "stroke-width": 1.8 }),
    svg("text", { x: x(chosen) + 6, y: 16, class: "chosen" }, `k* = ${chosen}`),
    svg("text", { x: 20, y: 238, "text-anchor": "middle" }, "1"),
    svg("text", { x: x(last), y: 238, "text-anchor": "middle" }, String(last)),
    svg("text", { x: 210, y: 254, "text-anchor": "middle" }, "pages taken"));
  if (cost !== null && cost !== undefined) picture.append(svg("circle", { cx: x(chosen), cy: y(cost), r: 4.5, fill: "var(--accent)" }));
  return picture;
}
