/** The page: its form, its theme, and what its parts tell each other. */

import "./library.js";
import "./answer.js";
import "./why.js";
import "./viewer.js";
import { ApiError, get, signIn } from "./api.js";
import { current, go } from "./address.js";
import { h } from "./dom.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("ask"));
const field = /** @type {HTMLInputElement} */ (document.getElementById("question"));
const scope = /** @type {HTMLSelectElement} */ (document.getElementById("scope"));
const library = /** @type {any} */ (document.getElementById("library"));
const menu = /** @type {HTMLElement} */ (document.getElementById("menu"));

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const q = field.value.trim();
  if (q) go({ q, shown: undefined, page: undefined, word: undefined, cell: undefined });
});

scope.addEventListener("change", () => {
  const [kind, value] = [scope.value.slice(0, 1), scope.value.slice(2)];
  go({ document: kind === "d" ? value : undefined, collection: kind === "c" ? value : undefined });
});

function showScope() {
  const { document: chosen, collection, q } = current();
  const options = [["a:", "All documents"], ...library.collections.map((/** @type {any} */ one) => [`c:${one.name}`, one.name]), ...library.documents.map((/** @type {any} */ one) => [`d:${one.id}`, one.name])];
  const value = chosen ? `d:${chosen}` : collection ? `c:${collection}` : "a:";
  scope.replaceChildren(...options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  if (document.activeElement !== field) field.value = q ?? "";
  document.title = q ? `${q} · ViSAR` : "ViSAR";
}

/** @param {boolean} open whether the library is drawn out, where it has no column of its own */
function draw(open) {
  library.classList.toggle("open", open);
  menu.setAttribute("aria-expanded", String(open));
}
menu.addEventListener("click", () => draw(!library.classList.contains("open")));
document.getElementById("answer")?.addEventListener("pointerdown", () => draw(false));
window.addEventListener("view", () => draw(false));

const theme = /** @type {HTMLElement} */ (document.getElementById("theme"));
const root = document.documentElement;
const kept = localStorage.getItem("theme");
if (kept) root.dataset.theme = kept;
theme.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  window.dispatchEvent(new CustomEvent("theme"));
});

window.addEventListener("explained", (event) => {
  /** @type {any} */ (document.querySelector("visar-answer")).shade(/** @type {CustomEvent} */ (event).detail);
});
/** Ask for the token once where the server wants one; a cookie stands for it from then on. */
async function checkToken() {
  try {
    await get("health");
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== "token") return;
    const field = /** @type {HTMLInputElement} */ (h("input", { type: "password", class: "filter", "aria-label": "Token", autocomplete: "off", required: true }));
    const said = h("p", { class: "small bad", role: "alert" });
    const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { class: "card" }, h("h2", {}, "This server wants a token"),
      h("p", { class: "soft small" }, "Who runs it has set one in VISAR_TOKEN."), h("form", { class: "row" }, field, h("button", {}, "Sign in")), said));
    dialog.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (await signIn(field.value)) location.reload();
      else said.textContent = "That is not its token.";
    });
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    document.body.append(dialog);
    dialog.showModal();
  }
}

checkToken();
window.addEventListener("view", showScope);
library.addEventListener("loaded", showScope);
showScope();
