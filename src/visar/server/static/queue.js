/** Files that are being uploaded, waiting, being added or refused: a list of them, and the progress of all. */

import { call, get, path, post } from "./api.js";
import { arrange, counted, h, moreItem, notice, refill } from "./dom.js";
import { fileName } from "./names.js";
import { Uploads } from "./uploads.js";

/**
 * @typedef {object} Job a job of the server
 * @property {any} job
 * @property {number} position in the order in which files were added
 */

const STAGES = { reading: "reading", ocr: "running OCR on", encoding: "encoding" };
const SHOWN = 50;
const UNFINISHED = ["waiting", "running"];

/** Show a notice if a request fails. @param {Promise<any>} request */
export const attempt = (request) => request.catch((error) => notice(error.message));

export class Queue {
  /** @type {Map<string, Job>} */ jobs = new Map();
  /** Positions of the files that were unfinished since the queue was last empty. @type {Set<number>} */ run = new Set();
  limit = SHOWN;
  isCanceling = false;
  summary = h("div", { class: "adding", role: "group", "aria-label": "All files", hidden: true });
  list = h("ul", { class: "queue", "aria-label": "Files that are being added" });

  /** @param {() => void} changed @param {(document: string) => void} added */
  constructor(changed, added) {
    this.changed = changed;
    this.added = added;
    this.uploads = new Uploads(changed, (job, position) => {
      const known = this.jobs.get(job.id)?.job;
      this.jobs.set(job.id, { job: known ?? job, position });
      if (known?.state === "done") added(known.document);
    });
    this.label = h("span");
    this.bar = /** @type {HTMLProgressElement} */ (h("progress", { "aria-label": "Progress of all files" }));
    this.cancel = /** @type {HTMLButtonElement} */ (h("button", { class: "link", onclick: () => attempt(this.cancelAll()) }, "Cancel all"));
    this.summary.append(h("div", { class: "row small" }, this.label, this.cancel), this.bar);
  }

  /** Take the state of a job from the server. @param {any} job */
  take(job) {
    const before = this.jobs.get(job.id);
    const upload = before ? undefined : this.uploads.claim(job);
    this.jobs.set(job.id, { job, position: before?.position ?? upload?.position ?? this.uploads.next() });
    // Jobs that ended before the page was opened are of no interest.
    if (job.state === "done" && (upload || (before && before.job.state !== "done"))) this.added(job.document);
    else this.changed();
  }

  /** Forget the jobs that were dismissed elsewhere while the connection was lost. */
  async forgetMissing() {
    const known = [...this.jobs.keys()];
    const there = new Set((await get("jobs")).map((/** @type {any} */ job) => job.id));
    for (const id of known) if (!there.has(id)) this.jobs.delete(id);
    this.changed();
  }

  /** @param {string} id */
  forget(id) {
    this.jobs.delete(id);
    this.changed();
  }

  get sending() {
    return this.uploads.entries.filter((one) => !one.problem && !one.job);
  }

  get refused() {
    return this.uploads.entries.filter((one) => one.problem);
  }

  /** @param {string[]} states */
  jobsIn(states) {
    return [...this.jobs.values()].filter(({ job }) => states.includes(job.state));
  }

  show() {
    const unfinished = this.jobsIn(UNFINISHED);
    const ended = this.jobsIn(["failed", "cancelled"]);
    const items = [
      ...this.sending.map((one) => ({ position: one.position, item: sending(this.uploads, one) })),
      ...this.refused.map((one) => ({ position: one.position, item: refused(this.uploads, one) })),
      ...unfinished.map(({ job, position }) => ({ position, item: unfinishedJob(job) })),
      ...ended.map(({ job, position }) => ({ position, item: endedJob(job) })),
    ].sort((a, b) => a.position - b.position).map(({ item }) => item);
    const hidden = items.length - this.limit;
    const shown = items.slice(0, this.limit);
    const more = () => {
      this.limit += SHOWN;
      this.changed();
    };
    if (hidden > 0) shown.push(moreItem(counted(hidden, "file"), more));
    const problems = this.refused.length + ended.length;
    if (problems > 1) shown.push({ key: `problems ${problems}`, make: () => h("li", { class: "small" }, h("button", { class: "link", onclick: () => attempt(this.retryAll()) }, "Try all again"), h("button", { class: "link", onclick: () => attempt(this.dismissAll()) }, `Dismiss all ${problems}`)) });
    arrange(this.list, shown);
    this.summarize(unfinished);
  }

  /** Show how far all files are that were added together. @param {Job[]} unfinished */
  summarize(unfinished) {
    const positions = [...this.sending, ...unfinished].map((one) => one.position);
    for (const position of positions) this.run.add(position);
    const jobs = [...this.jobs.values()].filter(({ position }) => this.run.has(position)).map(({ job }) => job);
    this.summary.hidden = this.run.size < 2 || !positions.length;
    if (!positions.length) {
      const done = jobs.filter((job) => job.state === "done").length;
      if (this.run.size > 1) notice(`Added ${done.toLocaleString("en")} of ${counted(this.run.size, "file")}.`);
      this.run.clear();
      return;
    }
    const finished = this.run.size - positions.length;
    const failed = jobs.filter((job) => job.state === "failed").length + this.refused.filter((one) => this.run.has(one.position)).length;
    const pages = jobs.reduce((sum, job) => sum + job.pages, 0);
    const done = jobs.reduce((sum, job) => sum + job.pages_done, 0);
    // The pages of a file are known once it is opened.
    const isOpen = this.sending.length || unfinished.some(({ job }) => !job.pages);
    const partly = unfinished.reduce((sum, { job }) => sum + (job.pages ? job.pages_done / job.pages : 0), 0);
    Object.assign(this.bar, { max: this.run.size, value: finished + partly });
    const number = (/** @type {number} */ value) => value.toLocaleString("en");
    refill(/** @type {HTMLElement} */ (this.label),
      h("span", {}, `${number(finished)} of ${counted(this.run.size, "file")}`),
      pages ? h("span", { class: "soft" }, `page ${number(done)} of ${isOpen ? "at least " : ""}${number(pages)}`) : null,
      failed ? h("span", { class: "bad" }, `${number(failed)} failed`) : null);
    if (this.cancel) this.cancel.disabled = this.isCanceling;
  }

  /** Cancel every unfinished file; the last one first, so that none begins meanwhile. */
  async cancelAll() {
    this.isCanceling = true;
    try {
      for (const one of this.sending) this.uploads.cancel(one);
      for (const { job } of this.jobsIn(UNFINISHED).reverse()) await post(`jobs/${path(job.id, "cancel")}`, {});
    } finally {
      this.isCanceling = false;
      this.changed();
    }
  }

  async retryAll() {
    this.uploads.retry(this.refused);
    for (const { job } of this.jobsIn(["failed", "cancelled"])) if (job.code !== "upload") await post(`jobs/${path(job.id, "retry")}`, {});
  }

  async dismissAll() {
    this.uploads.drop(this.refused);
    for (const { job } of this.jobsIn(["failed", "cancelled"])) await call("DELETE", `jobs/${path(job.id)}`);
  }
}

/** @param {string} name @param {string} verb @param {() => void} cancel */
function running(name, verb, cancel) {
  return h("li", { class: "entry" }, fileName(name),
    h("div", { class: "row small soft" }, h("span"), h("button", { class: "link", "aria-label": `Cancel ${name}`, onclick: cancel }, "Cancel")),
    h("progress", { "aria-label": `${verb} ${name}` }));
}

/** @param {import("./uploads.js").Uploads} uploads @param {import("./uploads.js").Upload} one @returns {import("./dom.js").Item} */
const sending = (uploads, one) => ({
  key: `upload ${one.position}`,
  make: () => running(one.file.name, "Uploading", () => uploads.cancel(one)),
  refresh: (item) => progress(item, one.cancelled ? "canceling" : one.sent ? `uploading, ${Math.round(one.sent * 100)}%` : "waiting", one.sent, 1),
});

/** @param {import("./uploads.js").Uploads} uploads @param {import("./uploads.js").Upload} one @returns {import("./dom.js").Item} */
const refused = (uploads, one) => ({
  key: `refused ${one.position} ${one.problem}`,
  make: () => h("li", { class: "entry" }, fileName(one.file.name), h("div", { class: "small bad", role: "alert" }, one.problem),
    h("div", { class: "small" }, h("button", { class: "link", onclick: () => uploads.retry([one]) }, "Try again"), dismissButton(one.file.name, () => uploads.drop([one])))),
});

/** @param {string} name @param {() => void} dismiss */
const dismissButton = (name, dismiss) => h("button", { class: "link", "aria-label": `Dismiss ${name}`, onclick: dismiss }, "Dismiss");

/** @param {any} job @param {string} action @param {object} [body] */
const act = (job, action, body = {}) => attempt(post(`jobs/${path(job.id, action)}`, body));

/** @param {any} job @returns {import("./dom.js").Item} */
const unfinishedJob = (job) => ({
  key: `job ${job.id}`,
  make: () => running(job.name, "Adding", () => act(job, "cancel")),
  refresh: (item) => progress(item, stage(job), job.pages_done, job.pages),
});

/** A job that failed or was canceled. @param {any} job @returns {import("./dom.js").Item} */
const endedJob = (job) => ({ key: `job ${job.id} ${job.state} ${job.reason}`, make: () => (job.code === "password" ? lockedJob(job) : stoppedJob(job)) });

/** @param {any} job */
const dismissJob = (job) => dismissButton(job.name, () => attempt(call("DELETE", `jobs/${path(job.id)}`)));

/** @param {any} job */
function lockedJob(job) {
  const field = /** @type {HTMLInputElement} */ (h("input", { type: "password", class: "filter", "aria-label": `Password for ${job.name}`, placeholder: "Password", autocomplete: "off" }));
  const form = h("form", { class: "row" }, field, h("button", {}, "Unlock"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act(job, "retry", { password: field.value });
  });
  return h("li", { class: "entry" }, fileName(job.name), h("div", { class: "small bad" }, "Encrypted: enter the password"), form, h("div", { class: "small" }, dismissJob(job)));
}

/** @param {any} job */
function stoppedJob(job) {
  const isFailed = job.state === "failed";
  const hint = job.code === "document" ? " Add another version of the file." : "";
  // Without its file there is nothing to try again with.
  const retry = job.code === "upload" ? null : h("button", { class: "link", onclick: () => act(job, "retry") }, "Try again");
  return h("li", { class: "entry" }, fileName(job.name), h("div", { class: `small ${isFailed ? "bad" : "soft"}` }, isFailed ? job.reason + hint : "Canceled"), h("div", { class: "small" }, retry, dismissJob(job)));
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
