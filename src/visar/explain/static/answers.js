/** An answer: written by a language model with citations, or quoted from the pages. */

import { h, place } from "./dom.js";
import { markdown } from "./markdown.js";

/** @typedef {(document: string, page: number, boxes?: number[][]) => void} Open called when a page, or a passage on it, is selected in a view */

/** @typedef {(page: any) => string | undefined} Picture returns the address of a page's picture, if there is one */

/** Space beside, and above, a table that is cut out of its page, as fractions of the page. More would show half a row. */
const CUT_MARGINS = [0.012, 0.003];
/** Smallest and largest width of a whole page, in pixels, at the scale of a cut-out. */
const CUT_SCALES = [480, 900];
/** Pixels beside the cell that answers, where a table is wider than its view. */
const ANSWER_MARGIN = 8;

/** @param {any} search @param {any} page */
export const pageName = (search, page) => `${search.documents.length > 1 ? `${nameOf(search, page.document)}, page` : "Page"} ${page.page}`;

/** @param {any} search @param {string} id */
const nameOf = (search, id) => search.documents.find((/** @type {any} */ one) => one.id === id)?.name ?? "";

/** The page of a citation, short. @param {any} search @param {any} page */
const shortName = (search, page) => `${search.documents.length > 1 ? `${nameOf(search, page.document)}, ` : ""}p. ${page.page}`;

/** A button that opens a quoted passage. @param {any} search @param {any} passage @param {Open} open */
const citation = (search, passage, open) => h("button", { class: "cite", onclick: () => open(passage.document, passage.page, passage.boxes) }, shortName(search, passage));

/** @param {any} search @param {any} answer @param {Open} open @param {Picture} picture */
export function answerCard(search, answer, open, picture) {
  const { text, citations, generation, problem } = answer;
  if (problem) return h("div", { class: "failed" }, h("div", { class: "card", role: "alert" }, h("p", { class: "bad" }, "There is no written answer, so the pages are quoted."), h("p", { class: "soft small" }, problem)), quoteCard(search, text ? answer.passages : [], open, picture));
  if (!generation) return quoteCard(search, text ? answer.passages : [], open, picture);
  const isDoubtful = citations.some((/** @type {any} */ one) => one.document !== null && !one.verified);
  return h("div", { class: "card" },
    text ? writtenText(text, (index) => marker(search, citations[index], open)) : h("p", { class: "text" }, `${generation.model} couldn't find the answer on these pages.`),
    sources(search, citations, open),
    isDoubtful ? h("p", { class: "small soft" }, "Unverified: the words or numbers of this statement weren't found on the page. Check it there.") : null,
    generation.finish === "length" ? h("p", { class: "small bad" }, "The answer reached its maximum length.") : null,
    generation.note ? h("p", { class: "small soft" }, generation.note) : null,
    h("p", { class: "soft small" }, `Written by ${generation.model} from these pages.`));
}

/** @param {string} text Markdown @param {import("./markdown.js").Mark} mark */
export const writtenText = (text, mark) => h("div", { class: "text written" }, ...markdown(text, mark));

/** Why the claim of a citation is unverified; empty if it is verified. @param {any} one */
export const doubt = (one) => (one.document === null ? "unverified: the model wasn't given this page" : one.verified ? "" : "unverified: not found on this page");

/** A citation behind its statement. @param {any} search @param {any} one @param {Open} open */
function marker(search, one, open) {
  if (!one) return new Text("");
  const { number, document, page, claim, verified, boxes } = one;
  const title = `${doubt(one)}: ${claim}`;
  if (document === null) return h("span", { class: "cite unknown", title }, `[${number}] unverified`);
  const button = h("button", { class: "cite", "aria-label": `[${number}] ${shortName(search, one)}`, onclick: () => open(document, page, boxes) }, `[${number}]`);
  return verified ? button : h("span", { class: "doubtful", title }, button, h("span", { class: "small" }, " unverified"));
}

/** The pages that an answer cites, each once. @param {any} search @param {any[]} citations @param {Open} open */
function sources(search, citations, open) {
  const first = [...new Map([...citations].reverse().map((one) => [one.number, one])).values()].sort((a, b) => a.number - b.number);
  if (!first.length) return h("p", { class: "small bad" }, "This answer cites no page. Check it on the pages below.");
  return h("ul", { class: "sources small", "aria-label": "Sources" }, ...first.map((one) => h("li", {}, one.document === null
    ? h("span", { class: "bad" }, `[${one.number}] Page ${one.label} was not among the pages the model was given.`)
    : h("button", { class: "link", onclick: () => open(one.document, one.page, one.boxes) }, `[${one.number}] ${shortName(search, one)}`))));
}

/**
 * Quoted passages, or the closest page if there are none.
 * @param {any} search @param {any[]} passages @param {Open} open @param {Picture} picture
 */
export function quoteCard(search, passages, open, picture) {
  const several = search.documents.length > 1;
  if (!passages.length) {
    // A reader may have put another page first.
    const closest = [...search.pages].sort((one, other) => (other.probability ?? 0) - (one.probability ?? 0))[0];
    const isBlank = search.documents.every((/** @type {any} */ one) => one.no_text);
    return h("div", { class: "card" },
      h("p", { class: "text" }, `I couldn't find this in ${several ? `these ${search.documents.length.toLocaleString("en")} documents` : search.documents[0]?.name ?? "the library"}${isBlank ? ": no text was found on any page" : ""}.`),
      closest && !isBlank ? h("p", { class: "soft" }, `Closest page: ${closest.page}${several ? ` of ${closest.name}` : ""} (probably not relevant).`) : null);
  }
  return h("div", { class: "card" },
    search.strength === "weak" ? h("p", { class: "small bad" }, `Weak match: the answer may not be in ${several ? "these documents" : "this document"}.`) : null,
    ...joinTables(passages).map((one) => (one.cells.length ? cutOut(search, one, open, picture) : quotation(search, one, open))),
    h("p", { class: "soft small" }, "Quoted directly from the pages."));
}

/** Join rows of the same table, which have the same header, so that they are shown in one picture. @param {any[]} passages */
function joinTables(passages) {
  /** @type {Map<unknown, any>} */ const joined = new Map();
  for (const one of passages) {
    const header = one.cells.filter((/** @type {any} */ cell) => cell.header).map((/** @type {any} */ cell) => cell.text);
    const key = one.cells.length ? JSON.stringify([one.document, one.page, header]) : one;
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
  const [left, top] = [0, 1].map((side) => Math.max(0, Math.min(...sides(side)) - CUT_MARGINS[side % 2]));
  const [right, bottom] = [2, 3].map((side) => Math.min(1, Math.max(...sides(side)) + CUT_MARGINS[side % 2]));
  const [width, height] = [right - left, bottom - top];
  const inside = (/** @type {number[]} */ box) => box.map((value, side) => (side % 2 ? (value - top) / height : (value - left) / width));
  const image = /** @type {HTMLImageElement} */ (place(h("img", { alt: passage.text }), inside([0, 0, 1, 1])));
  const answers = passage.cells.filter((/** @type {any} */ cell) => cell.answer);
  const frame = h("div", { class: "frame" }, image, ...answers.map((/** @type {any} */ cell) => place(h("div", { class: "spot" }), inside(cell.box))));
  const [smallest, largest] = CUT_SCALES.map((scale) => `${Math.round(scale * width)}px`);
  frame.style.width = `clamp(${smallest}, 100%, ${largest})`;
  // The shape of the page is known when its picture is there.
  const shape = (/** @type {number} */ ratio) => { frame.style.aspectRatio = String((ratio * width) / height); };
  shape(210 / 297);
  const view = h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table" }, frame);
  const figure = h("figure", { class: "cut" }, view, h("figcaption", {}, citation(search, passage, open)));
  image.addEventListener("load", () => {
    shape(image.naturalWidth / image.naturalHeight);
    // Where the table is wider than its view, the answer is in view.
    if (answers.length) view.scrollLeft = inside(answers[0].box)[2] * frame.clientWidth - view.clientWidth + ANSWER_MARGIN;
  });
  image.addEventListener("error", () => figure.replaceWith(quotation(search, passage, open)));
  image.src = source;
  return figure;
}
