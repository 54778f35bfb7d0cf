/** A report of one question: what the page shows, from data that stands in the file or is sent to it. */

import { counted, h } from "./dom.js";
import { answered, hits, paint, question, reasons, sentence, spots } from "./views.js";

/** @param {any} data what visar.explain.report.report_data gives */
export function show(data) {
  const { search, answer, explanation, pictures, numbers } = data;
  const bytes = Uint8Array.from(atob(data.similarity), (letter) => letter.charCodeAt(0));
  const matrix = new Float32Array(bytes.buffer);
  const main = /** @type {HTMLElement} */ (document.querySelector("main"));

  /** @param {any} hit */
  const pictureOf = (hit) => pictures[search.pages.indexOf(hit)];

  /** @param {string} document_ @param {number} page */
  function open(document_, page) {
    const place = search.pages.findIndex((/** @type {any} */ hit) => hit.document === document_ && hit.page === page);
    document.getElementById(`page-${place}`)?.scrollIntoView({ block: "start" });
  }

  const key = (/** @type {any} */ page) => `${page.document}/${page.page}`;
  const why = search.pages_searched > 1 ? reasons(search, explanation, matrix, open, {
    picture: (page) => pictures[search.pages.findIndex((/** @type {any} */ hit) => key(hit) === key(page))]?.source,
    pairs: async (first, second) => data.pairs[`${key(first)} ${key(second)}`] ?? null,
    change: () => {},
  }) : null;

  /** @param {string} [word] the number of the word whose heat is shown */
  function draw(word) {
    const several = search.documents.length > 1;
    const about = several ? `${search.documents.length} documents` : search.documents[0].name;
    const sheets = pictures.map((/** @type {any} */ picture, /** @type {number} */ place) => {
      const hit = search.pages[place];
      const name = `${several ? `${hit.name}, page` : "Page"} ${hit.page}`;
      const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { width: picture.width, height: picture.height, "aria-hidden": "true" }));
      const sheet = h("div", { class: "sheet" }, h("img", { src: picture.source, alt: name }), canvas, ...spots(search, hit));
      sheet.style.aspectRatio = `${picture.width} / ${picture.height}`;
      return h("figure", { id: `page-${place}` }, h("figcaption", { class: "label" }, name), sheet);
    });
    const more = search.pages.length - pictures.length;
    main.replaceChildren(
      h("p", { class: "label" }, `ViSAR · ${about}, ${counted(search.pages_searched, "page")}`),
      question(search.question, explanation.words, word, draw, (peeked) => heat(peeked ?? word)),
      answered(search, answer, open),
      sentence(search),
      hits(search, (hit) => pictureOf(hit)?.source, () => false, open),
      ...(why ? [why.element] : []),
      h("details", { class: "card" }, h("summary", {}, "The numbers"), h("ul", { class: "small" }, ...numbers.map((/** @type {string} */ line) => h("li", {}, line)))),
      ...sheets,
      ...(more ? [h("p", { class: "soft" }, `${counted(more, "more page")} without a picture here.`)] : []));
    heat(word);
  }

  /** @param {string} [word] */
  function heat(word) {
    main.querySelectorAll(".sheet canvas").forEach((canvas, place) => paint(/** @type {HTMLCanvasElement} */ (canvas), pictures[place], word === undefined ? undefined : explanation.words[Number(word)]));
  }

  draw();
  why?.map.label();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    draw();
    why?.map.draw();
  });
}

const embedded = document.getElementById("data")?.textContent;
if (embedded) show(JSON.parse(embedded));
