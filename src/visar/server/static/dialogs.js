/** The dialog that asks for a name or a token. */

import { counted, h } from "./dom.js";

/**
 * Ask for a name, or for one of those that exist.
 * @param {string} title
 * @param {{label: string, value?: string, action: string, existing?: {name: string, documents: number}[], hint?: string, isSecret?: boolean}} options a secret is hidden, and needed to go on
 * @param {(name: string) => Promise<any>} run the dialog closes when it is done, and stays with the reason if it fails
 */
export function askName(title, { label, value = "", action, existing = [], hint = "", isSecret = false }, run) {
  const field = /** @type {HTMLInputElement} */ (h("input", { class: "filter", type: isSecret ? "password" : "text", value, "aria-label": label, placeholder: label, maxlength: isSecret ? null : 200, autocomplete: "off", required: true }));
  const message = h("p", { class: "small bad", role: "alert" });
  const submit = async (/** @type {string} */ name) => {
    try {
      await run(name);
      dialog.close();
    } catch (error) {
      message.textContent = /** @type {Error} */ (error).message;
    }
  };
  const form = h("form", { class: "row" }, field, h("button", { class: "primary" }, action));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim()) submit(field.value.trim());
  });
  const choices = existing.map((one) => h("li", {}, h("button", { class: "entry", onclick: () => submit(one.name) }, one.name, h("div", { class: "soft small" }, counted(one.documents, "document")))));
  const close = isSecret ? null : h("button", { class: "quiet small", "aria-label": "Close", onclick: () => dialog.close() }, "×");
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { class: "card ask", "aria-label": title }, h("div", { class: "row" }, h("h2", {}, title), close),
    hint ? h("p", { class: "soft small" }, hint) : null, choices.length ? h("ul", { "aria-label": "Collections" }, ...choices) : null, form, message));
  dialog.addEventListener("cancel", (event) => isSecret && event.preventDefault());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  field.focus();
  field.select();
}
