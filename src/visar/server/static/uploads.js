/** Files on their way to the server: small ones together in one request, large ones alone. */

import { path, post, upload } from "./api.js";
import { current } from "./address.js";
import { notice } from "./dom.js";

/**
 * @typedef {object} Sending
 * @property {string} id
 * @property {string} name
 * @property {File} file
 * @property {number} share of it that was sent
 * @property {boolean} cancelled
 * @property {string} [problem] why it was refused; it stays until it is dismissed
 * @property {() => void} [stop] ends its request, if nothing of that is wanted
 */

const BATCH_BYTES = 2 ** 25;
const BATCH_FILES = 50;

export class Uploads {
  /** @type {Sending[]} */ entries = [];

  /** @param {() => void} changed @param {(job: any) => void} started */
  constructor(changed, started) {
    this.changed = changed;
    this.started = started;
  }

  /** @param {File[]} files */
  async add(files) {
    const { collection } = current();
    // The server leaves out what the file system hides.
    const entries = files.filter((file) => !file.name.startsWith(".")).map((file) => ({ id: crypto.randomUUID(), name: file.name, file, share: 0, cancelled: false }));
    this.entries.push(...entries);
    this.changed();
    for (const batch of batches(entries)) {
      const wanted = batch.filter((entry) => !entry.cancelled);
      if (wanted.length) await this.send(wanted, collection ?? null);
    }
  }

  /** @param {Sending} entry */
  cancel(entry) {
    entry.cancelled = true;
    if (entry.stop) entry.stop();
    else this.drop([entry]);
    this.changed();
  }

  /** @param {Sending} entry */
  forget(entry) {
    this.drop([entry]);
    this.changed();
  }

  /** @param {Sending[]} gone */
  drop(gone) {
    this.entries = this.entries.filter((entry) => !gone.includes(entry));
  }

  /** @param {Sending[]} batch @param {string | null} collection */
  async send(batch, collection) {
    const sending = upload(batch.map((entry) => entry.file), collection, (sent) => {
      let before = 0;
      for (const entry of batch) {
        entry.share = Math.min(1, Math.max(0, (sent - before) / (entry.file.size || 1)));
        before += entry.file.size;
      }
      this.changed();
    });
    // Once all is sent the server may have begun: its answer is waited for, and the jobs cancelled.
    const stop = () => batch.every((one) => one.cancelled) && batch.some((one) => one.share < 1) && sending.abort();
    for (const entry of batch) entry.stop = stop;
    try {
      (await sending.done).forEach(({ job, problem }, place) => {
        if (problem) batch[place].problem = problem.detail;
        if (job) this.started(job);
        if (job && batch[place].cancelled) post(`jobs/${path(job.id, "cancel")}`, {}).catch((error) => notice(error.message));
      });
    } catch (error) {
      if (/** @type {any} */ (error).code !== "cancelled") for (const entry of batch) entry.problem = /** @type {Error} */ (error).message;
    }
    this.drop(batch.filter((entry) => !entry.problem || entry.cancelled));
    this.changed();
  }
}

/** @param {Sending[]} entries @returns {Sending[][]} */
function batches(entries) {
  /** @type {Sending[][]} */ const found = [];
  let bytes = Infinity;
  for (const entry of entries) {
    bytes += entry.file.size;
    if (bytes > BATCH_BYTES || (found.at(-1)?.length ?? 0) >= BATCH_FILES) {
      found.push([]);
      bytes = entry.file.size;
    }
    found.at(-1)?.push(entry);
  }
  return found;
}
