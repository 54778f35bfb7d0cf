/** Markdown of language models as elements. Whatever is not known here, HTML above all, stays text. */

import { h } from "./dom.js";

/** @typedef {(index: number) => Node} Mark returns the element of a citation by its position in the text */

const MAX_DEPTH = 6;
const CITATION = /\[\d+\]/g;
/** Citations are replaced by these characters of private use, with their position between them, before anything is parsed. */
const HELD = /\uE000(\d+)\uE001/;
const HELD_CHARACTERS = /[\uE000\uE001]/g;
const FENCE = /^\s{0,3}(`{3,}|~{3,})/;
const HEADING = /^\s{0,3}#{1,6}\s+(.*?)\s*#*$/;
const RULE = /^\s{0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^\s{0,3}>\s?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
/** Code, bold, italics, a link or picture, and an escaped character. */
const INLINE = /(`+)([^`]+?)\1(?!`)|(\*\*|__)(?=\S)(.+?\S|\S)\3|(?<![\p{L}\d*])\*(?=[^\s*])([^*]*[^\s*])\*|(?<![\p{L}\d_])_(?=[^\s_])([^_]*[^\s_])_(?![\p{L}\d])|(!?)\[([^[\]]*)\]\(\s*<?([^\s<>()]*)>?(?:\s+"[^"]*")?\s*\)|\\([!-/:-@[-`{-~])/gsu;

/**
 * @param {string} text @param {Mark} mark
 * @returns {HTMLElement[]}
 */
export function markdown(text, mark) {
  let count = 0;
  const held = text.replace(HELD_CHARACTERS, "").replace(CITATION, () => `\uE000${count++}\uE001`);
  return blocks(held.split("\n"), mark, 0);
}

/** @param {string[]} lines @param {Mark} mark @param {number} depth @returns {HTMLElement[]} */
function blocks(lines, mark, depth) {
  /** @type {HTMLElement[]} */ const found = [];
  const isDeep = depth >= MAX_DEPTH;
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    const end = (/** @type {(line: string, index: number) => boolean} */ isOver) => {
      const next = lines.findIndex((one, index) => index > at && isOver(one, index));
      return next < 0 ? lines.length : next;
    };
    let next = at + 1;
    if (!line.trim()) {
      // nothing
    } else if (fence) {
      next = end((one) => one.trim().startsWith(fence[1]));
      found.push(h("pre", { tabindex: 0 }, h("code", {}, ...marked(lines.slice(at + 1, next).join("\n"), mark))));
      next += 1;
    } else if (heading) found.push(h("h3", {}, ...inline(heading[1], mark)));
    else if (RULE.test(line)) found.push(h("hr"));
    else if (line.includes("|") && DIVIDER.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) {
      next = end((one, index) => index > at + 1 && !one.includes("|"));
      found.push(table(lines.slice(at, next), mark));
    } else if (QUOTE.test(line) && !isDeep) {
      next = end((one) => !QUOTE.test(one));
      found.push(h("blockquote", {}, ...blocks(lines.slice(at, next).map((one) => one.replace(QUOTE, "")), mark, depth + 1)));
    } else if (ITEM.test(line) && !isDeep) {
      next = end((one, index) => (one.trim() ? !/^\s/.test(one) && !ITEM.test(one) : !/^\s|^[-*+]\s|^\d+[.)]\s/.test(lines[index + 1] ?? "")));
      found.push(list(lines.slice(at, next), mark, depth));
    } else {
      next = end((one) => !one.trim() || FENCE.test(one) || HEADING.test(one) || (!isDeep && (QUOTE.test(one) || ITEM.test(one))));
      found.push(h("p", {}, ...inline(lines.slice(at, next).map((one) => one.trim()).join("\n"), mark)));
    }
    at = next;
  }
  return found;
}

/** @param {string[]} lines @param {Mark} mark @param {number} depth */
function list(lines, mark, depth) {
  const indent = (ITEM.exec(lines[0])?.[1] ?? "").length;
  const isNumbered = /^\s*\d/.test(lines[0]);
  /** @type {string[][]} */ const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent + 1) items.push([item[3]]);
    else items.at(-1)?.push(line.replace(/^( {1,4}|\t)/, ""));
  }
  const start = isNumbered ? parseInt(lines[0].trim(), 10) : 1;
  return h(isNumbered ? "ol" : "ul", start === 1 ? {} : { start }, ...items.map((item) => {
    const content = blocks(item, mark, depth + 1);
    // A single line needs no paragraph.
    return h("li", {}, ...(content[0]?.tagName === "P" ? [...content[0].childNodes, ...content.slice(1)] : content));
  }));
}

/** @param {string[]} lines header, divider and rows @param {Mark} mark */
function table(lines, mark) {
  const cells = (/** @type {string} */ line) => line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  const sides = cells(lines[1]).map((cell) => (/^-+:$/.test(cell) ? "right" : null));
  const row = (/** @type {string} */ line, /** @type {string} */ tag) => h("tr", {}, ...cells(line).slice(0, sides.length).map((cell, index) => h(tag, { class: sides[index] }, ...inline(cell, mark))));
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table" }, h("table", {}, h("thead", {}, row(lines[0], "th")), h("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

/** @param {string} text @param {Mark} mark @returns {Node[]} */
function inline(text, mark) {
  /** @type {Node[]} */ const found = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, ticks, code, strong, bold, star, underscore, picture, label, target, escaped] = match;
    found.push(...marked(text.slice(end, match.index), mark));
    end = match.index + whole.length;
    if (ticks) found.push(h("code", {}, ...marked(code.trim() || code, mark)));
    else if (strong) found.push(h("strong", {}, ...inline(bold, mark)));
    else if (star ?? underscore) found.push(h("em", {}, ...inline(star ?? underscore, mark)));
    else if (escaped) found.push(new Text(escaped));
    else if (picture || !/^https?:\/\/[^\s\uE000]+$/i.test(target)) found.push(...inline(label, mark));
    else found.push(h("a", { href: target, target: "_blank", rel: "noopener noreferrer" }, ...inline(label, mark)));
  }
  return [...found, ...marked(text.slice(end), mark)];
}

/** Text with its citations. @param {string} text @param {Mark} mark @returns {Node[]} */
const marked = (text, mark) => text.split(HELD).flatMap((part, index) => (index % 2 ? [mark(Number(part))] : part ? [new Text(part)] : []));
