/** The views of a decision: the page, a report and a notebook show the same. */

import { h, svg } from "./dom.js";

/** @typedef {(document: string, page: number) => void} Open called when a page is chosen in a view */

const METHODS = { visar: "ViSAR", "visar-approx": "ViSAR, approximated", "largest-gap": "Largest-Gap", "score-cluster": "Score-Cluster", calibrated: "Calibrated" };

/**
 * Everything in one card.
 * @param {any} search @param {any} explanation @param {Float32Array} matrix @param {Open} open
 */
export function reasons(search, explanation, matrix, open) {
  const best = [...explanation.pages].sort((a, b) => a.rank - b.rank);
  return h("div", { class: "card" },
    h("h2", { class: "label" }, "Why these pages"),
    h("p", { class: "soft small" }, "Each bar is a page: how much of it speaks of the question. The chosen ones share their evidence; the others do not."),
    strip(search, explanation, open),
    h("div", { class: "views" },
      h("figure", {}, heatmap(search, best, matrix, explanation.matrix_size, open), h("figcaption", { class: "soft small" }, "How alike pages are in what you asked, best first. The square is what was taken.")),
      h("figure", {}, curve(explanation), h("figcaption", { class: "soft small" }, "The cost of stopping after so many pages: it is lowest where the chosen pages agree and the others add little."))),
    h("div", { class: "cuts small" }, h("span", { class: "soft" }, "Pages by method:"), ...Object.entries(explanation.cuts).map(([name, k]) =>
      h("span", {}, `${METHODS[/** @type {keyof METHODS} */ (name)] ?? name} `, h("strong", {}, String(k))))));
}

/** @param {any} search @param {any} explanation @param {Open} open */
function strip(search, explanation, open) {
  const chosen = new Set(search.pages.map((/** @type {any} */ hit) => `${hit.document}/${hit.page}`));
  const { pages } = explanation;
  const several = search.documents.length > 1;
  const width = 860;
  const step = width / pages.length;
  const picture = svg("svg", { viewBox: `0 0 ${width} 74`, role: "img", "aria-label": `The activity of ${pages.length} pages` });
  pages.forEach((/** @type {any} */ one, /** @type {number} */ place) => {
    const taken = chosen.has(`${one.document}/${one.page}`);
    const height = Math.max(2, 48 * one.activity);
    const x = place * step;
    const bar = svg("rect", { class: taken ? "page chosen" : "page", x: x.toFixed(2), y: 54 - height, width: Math.max(0.6, step * 0.82).toFixed(2), height, onclick: () => open(one.document, one.page) });
    bar.append(svg("title", {}, `Page ${one.page}, rank ${one.rank}`));
    picture.append(bar);
    if (taken && !several) picture.append(svg("text", { class: "chosen", x: x + step / 2, y: 70, "text-anchor": "middle" }, String(one.page)));
  });
  return picture;
}

/** @param {any} search @param {any[]} best @param {Float32Array} matrix @param {number} size @param {Open} open */
function heatmap(search, best, matrix, size, open) {
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
  const share = (100 * Math.min(search.k, size)) / size;
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

/** @param {any} explanation */
function curve(explanation) {
  const known = explanation.cost.map((/** @type {number | null} */ value, /** @type {number} */ place) => [place + 1, value]).filter((/** @type {any} */ [, value]) => value !== null);
  const picture = svg("svg", { viewBox: "0 0 420 260", role: "img", "aria-label": `The cost of each number of pages; lowest at ${explanation.k_star}` });
  if (known.length < 2) return picture;
  const values = known.map((/** @type {any} */ [, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const last = known.at(-1)[0];
  const x = (/** @type {number} */ k) => 20 + (380 * (k - 1)) / Math.max(1, last - 1);
  const y = (/** @type {number} */ value) => 220 - (190 * (value - low)) / (high - low || 1);
  const points = known.map((/** @type {any} */ [k, value]) => `${x(k).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const chosen = explanation.k_star;
  const cost = explanation.cost[chosen - 1];
  picture.append(
    svg("line", { x1: 20, x2: 400, y1: 220, y2: 220, stroke: "var(--line)" }),
    svg("line", { x1: x(chosen), x2: x(chosen), y1: 20, y2: 220, stroke: "var(--accent)", "stroke-dasharray": "4 3" }),
    svg("polyline", { points, fill: "none", stroke: "var(--ink)", "stroke-width": 1.8 }),
    svg("text", { x: x(chosen) + 6, y: 16, class: "chosen" }, `${chosen} taken`),
    svg("text", { x: 20, y: 238, "text-anchor": "middle" }, "1"),
    svg("text", { x: x(last), y: 238, "text-anchor": "middle" }, String(last)),
    svg("text", { x: 210, y: 254, "text-anchor": "middle" }, "pages taken"));
  if (cost !== null && cost !== undefined) picture.append(svg("circle", { cx: x(chosen), cy: y(cost), r: 4.5, fill: "var(--accent)" }));
  return picture;
}
