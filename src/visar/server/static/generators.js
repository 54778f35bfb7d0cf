/** What writes the answers: the choice of the user among what the server offers. */

import { get } from "./api.js";
import { h } from "./dom.js";

const QUOTES = "extractive";
const KEY = "generator";

/** @type {Promise<string[]> | undefined} */
let loading;

/** The names that the server offers, its default first; none if they can't be read. @returns {Promise<string[]>} */
function offered() {
  loading ??= get("generators").then((found) => found.names, () => {
    loading = undefined;
    return [];
  });
  return loading;
}

/** The one to ask with; undefined for the server's default. @returns {Promise<string | undefined>} */
export async function chosenGenerator() {
  const chosen = localStorage.getItem(KEY);
  return (await offered()).find((name) => name === chosen);
}

/** A menu of generators, hidden if there is only one. */
export function generatorMenu() {
  const menu = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Answers written by", class: "small" }));
  const label = h("label", { class: "row soft small", hidden: true }, h("span", {}, "Answers:"), menu);
  menu.addEventListener("change", () => localStorage.setItem(KEY, menu.value));
  offered().then(async (names) => {
    const chosen = (await chosenGenerator()) ?? names[0];
    menu.replaceChildren(...names.map((name) => h("option", { value: name, selected: name === chosen }, name === QUOTES ? "Quotes only" : name)));
    label.hidden = names.length < 2;
  });
  return label;
}
