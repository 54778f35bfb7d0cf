/** Entries of the library for files that are uploaded, waiting, being added or refused. */

import { call, path, post } from "./api.js";
import { h, notice } from "./dom.js";

const STAGES = { reading: "reading", ocr: "running OCR on", encoding: "encoding" };
/** Problems come first, then what is running. */
const ORDER = { failed: 0, cancelled: 0, running: 1, waiting: 2 };

/** Show a notice if a request fails. @param {Promise<any>} request */
export const attempt = (request) => request.catch((error) => notice(error.message));

/**
 * @param {import("./uploads.js").Uploads} uploads @param {any[]} jobs
 * @returns {import("./dom.js").Item[]}
 */
export function queueItems(uploads, jobs) {
  const uploading = uploads.entries.map((one) => ({
    order: one.problem ? 0 : 1,
    key: `upload ${one.id} ${one.problem}`,
    make: () => (one.problem ? refusedUpload(uploads, one, one.problem) : runningUpload(uploads, one)),
    refresh: (/** @type {HTMLElement} */ item) => progress(item, one.cancelled ? "canceling" : one.sent ? `uploading, ${Math.round(one.sent * 100)}%` : "waiting", one.sent, 1),
  }));
  const adding = jobs.filter((job) => job.state !== "done").map((job) => {
    const order = ORDER[/** @type {keyof ORDER} */ (job.state)];
    return {
      order,
      key: `job ${job.id} ${order ? "" : job.state} ${job.reason}`,
      make: () => (order ? runningJob(job) : endedJob(job)),
      refresh: order ? (/** @type {HTMLElement} */ item) => progress(item, stage(job), job.pages_done, job.pages) : undefined,
    };
  });
  return [...uploading, ...adding].sort((a, b) => a.order - b.order);
}

/** @param {string} name @param {string} verb @param {() => void} cancel */
function running(name, verb, cancel) {
  return h("li", { class: "entry" }, name,
    h("div", { class: "row small soft" }, h("span"), h("button", { class: "link", onclick: cancel }, "Cancel")),
    h("progress", { "aria-label": `${verb} ${name}` }));
}

/** @param {import("./uploads.js").Uploads} uploads @param {import("./uploads.js").Upload} one */
const runningUpload = (uploads, one) => running(one.file.name, "Uploading", () => uploads.cancel(one));

/** @param {any} job */
const runningJob = (job) => running(job.name, "Adding", () => act(job, "cancel"));

/** @param {string} name @param {() => void} dismiss */
const dismissButton = (name, dismiss) => h("button", { class: "link", "aria-label": `Dismiss ${name}`, onclick: dismiss }, "Dismiss");

/** @param {import("./uploads.js").Uploads} uploads @param {import("./uploads.js").Upload} one @param {string} problem */
function refusedUpload(uploads, one, problem) {
  return h("li", { class: "entry" }, one.file.name, h("div", { class: "small bad", role: "alert" }, problem),
    h("div", { class: "small" }, h("button", { class: "link", onclick: () => uploads.retry(one) }, "Try again"), dismissButton(one.file.name, () => uploads.drop([one]))));
}

/** @param {any} job @param {string} action @param {object} [body] */
const act = (job, action, body = {}) => attempt(post(`jobs/${path(job.id, action)}`, body));

/** A job that failed or was canceled. @param {any} job */
function endedJob(job) {
  const dismiss = dismissButton(job.name, () => attempt(call("DELETE", `jobs/${path(job.id)}`)));
  if (job.code === "password") {
    const field = /** @type {HTMLInputElement} */ (h("input", { type: "password", class: "filter", "aria-label": `Password for ${job.name}`, placeholder: "Password", autocomplete: "off" }));
    const form = h("form", { class: "row" }, field, h("button", {}, "Unlock"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      act(job, "retry", { password: field.value });
    });
    return h("li", { class: "entry" }, job.name, h("div", { class: "small bad" }, "Encrypted: enter the password"), form, dismiss);
  }
  const isFailed = job.state === "failed";
  // Without its file there is nothing to try again with.
  const retry = job.code === "upload" ? null : h("button", { class: "link", onclick: () => act(job, "retry") }, "Try again");
  return h("li", { class: "entry" }, job.name, h("div", { class: `small ${isFailed ? "bad" : "soft"}` }, isFailed ? job.reason : "Canceled"), h("div", { class: "small" }, retry, dismiss));
}

/** @param {any} job */
function stage(job) {
  if (job.state === "waiting") return "waiting";
  const verb = STAGES[/** @type {keyof STAGES} */ (job.stage)];
  if (!verb) return "opening";
  return job.pages ? `${verb} page ${job.pages_done} of ${job.pages}` : `${verb} pages`;
}

/** @param {HTMLElement} item @param {string} text @param {number} done @param {number} total */
function progress(item, text, done, total) {
  const bar = item.querySelector("progress");
  const label = item.querySelector(".row > span");
  if (!bar || !label) return;
  label.textContent = text;
  Object.assign(bar, { max: Math.max(1, total), value: done });
}
