/** The report of one question, from data that is embedded in the file or sent to it. */

import { answerCard, pageName } from "./answers.js";
import { counted, h } from "./dom.js";
import { pageList, paint, passageFrames, questionHeading, reasons, summaryLine } from "./views.js";

/** @param {any} data the result of visar.explain.report.report_data */
export function show({ answer, explanation, pictures, pairs, numbers }) {
  const { search } = answer;
  const main = /** @type {HTMLElement} */ (document.querySelector("main"));
  const key = (/** @type {any} */ page) => `${page.document}/${page.page}`;
  const indexOf = (/** @type {any} */ page) => search.pages.findIndex((/** @type {any} */ hit) => key(hit) === key(page));
  const pictureOf = (/** @type {any} */ page) => pictures[indexOf(page)]?.source;
  const open = (/** @type {string} */ id, /** @type {number} */ page) => document.getElementById(`page-${indexOf({ document: id, page })}`)?.scrollIntoView({ block: "start" });

  const why = search.pages_searched > 1 ? reasons(search, explanation, open, {
    picture: pictureOf,
    pairs: async (first, second) => pairs[`${key(first)} ${key(second)}`] ?? null,
    change: () => {},
  }, true) : null;

  /** @param {string} [word] index of the word whose heat is shown */
  function draw(word) {
    const source = search.documents.length > 1 ? counted(search.documents.length, "document") : search.documents[0].name;
    const sheets = pictures.map((/** @type {any} */ picture, /** @type {number} */ index) => {
      const hit = search.pages[index];
      const name = pageName(search, hit);
      const canvas = h("canvas", { width: picture.width, height: picture.height, "aria-hidden": "true" });
      const sheet = h("div", { class: "sheet" }, h("img", { src: picture.source, alt: name }), canvas, ...passageFrames(search, hit));
      sheet.style.aspectRatio = `${picture.width} / ${picture.height}`;
      return h("figure", { id: `page-${index}` }, h("figcaption", { class: "label" }, name), sheet);
    });
    const more = search.pages.length - pictures.length;
    main.replaceChildren(
      h("p", { class: "label" }, `ViSAR · ${source}, ${counted(search.pages_searched, "page")}`),
      questionHeading(search.query.question, explanation.words, word, draw, (preview) => heat(preview ?? word)),
      answerCard(search, answer, open, pictureOf),
      summaryLine(search),
      pageList(search, pictureOf, () => false, open),
      ...(why ? [why.element] : []),
      h("details", { class: "card" }, h("summary", {}, "Numbers"), h("ul", { class: "small" }, ...numbers.map((/** @type {string} */ line) => h("li", {}, line)))),
      ...sheets,
      ...(more ? [h("p", { class: "soft" }, `${counted(more, "more page")} without a picture.`)] : []));
    heat(word);
  }

  /** @param {string} [word] */
  function heat(word) {
    main.querySelectorAll(".sheet canvas").forEach((canvas, index) => paint(/** @type {HTMLCanvasElement} */ (canvas), pictures[index], word === undefined ? undefined : explanation.words[Number(word)]));
  }

  draw();
  why?.matrix.label();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    draw();
    why?.matrix.draw();
  });
}

const embedded = document.getElementById("data")?.textContent;
if (embedded) show(JSON.parse(embedded));
