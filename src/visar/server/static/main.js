/** The page: the question form, the theme, and signing in. */

import "./library.js";
import "./threads.js";
import "./answer.js";
import "./viewer.js";
import "./why.js"; // after the viewer: what it tells about a question follows the question
import { get, signIn } from "./api.js";
import { current, go } from "./address.js";
import { askName } from "./dialogs.js";
import { h } from "./dom.js";

const SCOPES_SHOWN = 100;

const form = /** @type {HTMLFormElement} */ (document.getElementById("ask"));
const field = /** @type {HTMLInputElement} */ (document.getElementById("question"));
const scope = /** @type {HTMLSelectElement} */ (document.getElementById("scope"));
const library = /** @type {any} */ (document.getElementById("library"));
const menu = /** @type {HTMLElement} */ (document.getElementById("menu"));
const answer = /** @type {any} */ (document.querySelector("visar-answer"));

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const q = field.value.trim();
  if (!q) return;
  field.value = "";
  answer.ask(q);
});

scope.addEventListener("change", () => {
  const [kind, value] = [scope.value.slice(0, 1), scope.value.slice(2)];
  go({ document: kind === "d" ? value : undefined, collection: kind === "c" ? value : undefined });
});

function showScope() {
  const { document: selected, collection, thread, q } = current();
  const value = selected ? `d:${selected}` : collection ? `c:${collection}` : "a:";
  const documents = [...library.documents.values()].reverse();
  // A menu of thousands is no use: the library lists the others.
  const listed = documents.filter((one, index) => index < SCOPES_SHOWN || one.id === selected);
  const options = [["a:", "All documents"], ...library.collections.map((/** @type {any} */ one) => [`c:${one.name}`, one.name]), ...listed.map((one) => [`d:${one.id}`, one.name])];
  scope.replaceChildren(...options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  if (listed.length < documents.length) scope.append(h("option", { disabled: true }, "Find more in the library"));
  field.placeholder = thread || q ? "Ask a follow-up" : "Ask a question";
  document.title = q ? `${q} · ViSAR` : "ViSAR";
}

/** Open or close the library where it is a drawer. @param {boolean} isOpen */
function draw(isOpen) {
  library.classList.toggle("open", isOpen);
  menu.setAttribute("aria-expanded", String(isOpen));
}
menu.addEventListener("click", () => draw(!library.classList.contains("open")));
document.getElementById("answer")?.addEventListener("pointerdown", () => draw(false));
window.addEventListener("view", () => draw(false));
for (const part of [library, menu]) part.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.key !== "Escape" || !library.classList.contains("open")) return;
  event.stopPropagation(); // which would close the page
  draw(false);
  menu.focus();
});

const theme = /** @type {HTMLElement} */ (document.getElementById("theme"));
const root = document.documentElement;
root.dataset.theme = localStorage.getItem("theme") ?? "";
theme.addEventListener("click", () => {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  window.dispatchEvent(new CustomEvent("theme"));
});

/** Ask for the token if the server needs one. A cookie replaces it from then on. */
async function checkToken() {
  const problem = await get("health").then(() => null, (error) => error);
  if (problem?.code !== "token") return;
  askName("Sign in", { label: "Token", action: "Sign in", hint: "This server needs a token. Ask the person who runs it for one.", isSecret: true }, async (token) => {
    await signIn(token).catch((error) => Promise.reject(error.code === "token" ? new Error("Wrong token.") : error));
    location.reload();
  });
}

checkToken();
window.addEventListener("view", showScope);
window.addEventListener("library", showScope);
showScope();
