/** Files on their way to the server: small ones share a request, large ones have their own. */

import { path, post, upload } from "./api.js";
import { current } from "./address.js";
import { notice } from "./dom.js";

/**
 * @typedef {object} Upload
 * @property {number} position in the order in which files were added
 * @property {File} file
 * @property {number} sent fraction of the file that was sent
 * @property {boolean} cancelled
 * @property {string} [job] id of the job that adds the file, if it began before the request ended
 * @property {string} [problem] why the upload failed; the entry stays until it is dismissed
 * @property {() => void} [stop] aborts the request if all its files are cancelled
 */

const BATCH_BYTES = 2 ** 25;
const BATCH_FILES = 50;

export class Uploads {
  /** @type {Upload[]} */ entries = [];
  count = 0;

  /** @param {() => void} changed @param {(job: any, position: number) => void} started */
  constructor(changed, started) {
    this.changed = changed;
    this.started = started;
  }

  /** The next position in the order in which files were added. */
  next() {
    return (this.count += 1);
  }

  /** @param {File[]} files */
  async add(files) {
    const { collection } = current();
    // The server skips hidden files, too.
    const entries = files.filter((file) => !file.name.startsWith(".")).map((file) => ({ position: this.next(), file, sent: 0, cancelled: false }));
    this.entries.push(...entries);
    this.changed();
    for (const batch of batches(entries)) {
      const rest = batch.filter((entry) => !entry.cancelled);
      if (rest.length) await this.send(rest, collection);
    }
  }

  /** @param {Upload} entry */
  cancel(entry) {
    entry.cancelled = true;
    if (entry.stop) entry.stop();
    else this.drop([entry]);
    this.changed();
  }

  /** @param {Upload[]} entries */
  retry(entries) {
    this.drop(entries);
    this.add(entries.map((entry) => entry.file));
  }

  /** @param {Upload[]} gone */
  drop(gone) {
    this.entries = this.entries.filter((entry) => !gone.includes(entry));
    this.changed();
  }

  /** Assign a job to the upload that it came from, whose request has not ended yet. @param {any} job */
  claim(job) {
    const entry = this.entries.find((one) => one.stop && !one.problem && !one.job && one.file.name === job.name);
    if (entry) entry.job = job.id;
    return entry;
  }

  /** @param {Upload[]} batch @param {string | undefined} collection */
  async send(batch, collection) {
    const request = upload(batch.map((entry) => entry.file), collection, (sent) => {
      let before = 0;
      for (const entry of batch) {
        entry.sent = Math.min(1, Math.max(0, (sent - before) / (entry.file.size || 1)));
        before += entry.file.size;
      }
      this.changed();
    });
    // Once everything is sent the server may have started: then its jobs are cancelled instead.
    const stop = () => batch.every((one) => one.cancelled) && batch.some((one) => one.sent < 1) && request.abort();
    for (const entry of batch) entry.stop = stop;
    try {
      (await request.done).forEach(({ job, problem }, index) => {
        if (problem) batch[index].problem = problem.detail;
        if (job) this.started(job, batch[index].position);
        if (job && batch[index].cancelled) post(`jobs/${path(job.id, "cancel")}`, {}).catch((error) => notice(error.message));
      });
    } catch (error) {
      for (const entry of batch) if (!entry.job) entry.problem = /** @type {Error} */ (error).message;
    }
    this.drop(batch.filter((entry) => !entry.problem || entry.cancelled));
  }
}

/** @param {Upload[]} entries @returns {Upload[][]} */
function batches(entries) {
  /** @type {Upload[][]} */ const found = [];
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

/** The files of a drop, also of its folders. @param {DataTransfer | null} transfer */
export async function droppedFiles(transfer) {
  // Items are only there until the first await. Some are files without an entry.
  const items = [...(transfer?.items ?? [])].filter((item) => item.kind === "file").map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
  /** @type {File[]} */ const files = [];
  const walk = async (/** @type {any} */ entry) => {
    if (entry instanceof File) files.push(entry);
    else if (entry?.isFile) files.push(await new Promise((resolve, reject) => entry.file(resolve, reject)));
    else if (entry) {
      const reader = entry.createReader();
      for (let part; !part || part.length;) {
        part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
        for (const one of part) await walk(one);
      }
    }
  };
  for (const item of items) await walk(item);
  return files;
}
