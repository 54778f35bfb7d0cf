/** Requests to the server. Every failure is an `ApiError` whose message can be shown. */

const ROOT = new URL("api/v1/", document.baseURI);
const RECONNECT_MILLISECONDS = 5000;
const STATUS_TEXT = /** @type {Record<number, string>} */ ({
  413: "This is too large for the server or a proxy in front of it: send fewer or smaller files",
  429: "Too many requests: try again in a moment",
  502: "The server isn't available: try again in a moment",
  503: "The server isn't available: try again in a moment",
  504: "The server took too long: try again in a moment",
});

export class ApiError extends Error {
  /** @param {string} message @param {string} code */
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

/** @param {string} path */
export const url = (path) => new URL(path, ROOT).href;

/** @param {...string | number} parts */
export const path = (...parts) => parts.map((part) => encodeURIComponent(part)).join("/");

function unreachable() {
  window.dispatchEvent(new CustomEvent("unreachable"));
  return new ApiError("Can't reach the server. Check that it is running and that you are online.", "connection");
}

/**
 * Read a reply as JSON. A proxy may have answered instead of the server, with a page of its own.
 * @param {number} status @param {string} text @returns {any}
 */
function read(status, text) {
  let body;
  try {
    body = JSON.parse(text || "{}");
  } catch {
    body = undefined;
  }
  if (status < 300 && body !== undefined) return body;
  const reason = status < 300 ? "The reply isn't from ViSAR" : STATUS_TEXT[status] ?? "The server failed";
  throw new ApiError(body?.detail ?? `${reason} (HTTP ${status}).`, body?.code ?? "");
}

/**
 * @param {string} method @param {string} where @param {unknown} [body]
 * @param {{signal?: AbortSignal, headers?: Record<string, string>}} [options]
 * @returns {Promise<Response>}
 */
async function send(method, where, body, { signal, headers } = {}) {
  let response;
  try {
    const type = body === undefined ? undefined : { "Content-Type": "application/json" };
    response = await fetch(url(where), { method, signal, headers: { ...type, ...headers }, body: JSON.stringify(body) });
  } catch (error) {
    if (/** @type {Error} */ (error).name === "AbortError") throw error;
    throw unreachable();
  }
  if (!response.ok) read(response.status, await response.text());
  return response;
}

/** Send a request and read its reply. @param {string} method @param {string} where @param {unknown} [body] @returns {Promise<any>} */
export async function call(method, where, body) {
  const response = await send(method, where, body);
  return read(response.status, await response.text().catch(() => Promise.reject(unreachable())));
}

/** @param {string} where */
export const get = (where) => call("GET", where);

/** @param {string} where @param {unknown} body */
export const post = (where, body) => call("POST", where, body);

/** Exchange the token for a cookie; fails if it is wrong. @param {string} token */
export const signIn = (token) => send("POST", "session", {}, { headers: { Authorization: `Bearer ${token}` } });

/** A file of a tar stream. An extended header carries its name, which can have any length. @param {File} file */
function member(file) {
  const encoder = new TextEncoder();
  const header = (/** @type {string} */ name, /** @type {number} */ size, /** @type {string} */ kind) => {
    const block = new Uint8Array(512);
    const write = (/** @type {string} */ text, /** @type {number} */ at) => block.set(encoder.encode(text), at);
    write(name, 0);
    write("0000644\0", 100);
    write(`${size.toString(8).padStart(11, "0")}\0`, 124);
    write("00000000000\0        ", 136);
    write(kind, 156);
    write("ustar\0" + "00", 257);
    write(`${block.reduce((sum, value) => sum + value, 0).toString(8).padStart(6, "0")}\0`, 148);
    return block;
  };
  const padding = (/** @type {number} */ size) => new Uint8Array((512 - (size % 512)) % 512);
  // "LENGTH path=NAME", where the length counts its own digits.
  const record = encoder.encode(` path=${file.name}\n`);
  let length = record.length;
  while (String(length).length + record.length !== length) length = String(length).length + record.length;
  const extended = [header("name", length, "x"), String(length), record, padding(length)];
  return [...extended, header("file", file.size, "0"), file, padding(file.size)];
}

/**
 * Send files in one request, as a tar stream.
 * @param {File[]} files
 * @param {string | undefined} collection
 * @param {(sent: number) => void} progress called with the number of bytes sent
 * @returns {{done: Promise<{name: string, job: any, problem: any}[]>, abort: () => void}}
 */
export function upload(files, collection, progress) {
  const request = new XMLHttpRequest();
  const query = collection ? `?${new URLSearchParams({ collection })}` : "";
  const body = new Blob([.../** @type {BlobPart[]} */ (files.flatMap(member)), new Uint8Array(1024)]);
  const content = files.reduce((sum, file) => sum + file.size, 0);
  const done = new Promise((resolve, reject) => {
    request.upload.onprogress = (event) => progress((content * event.loaded) / body.size);
    // Servers that refuse a large body often close the connection before the browser reads why.
    request.onerror = () => reject(new ApiError("The upload failed: the server can't be reached, or the files are too large for it.", "connection"));
    request.onabort = () => reject(new ApiError("Canceled.", "cancelled"));
    request.onload = () => {
      try {
        resolve(read(request.status, request.responseText));
      } catch (error) {
        reject(error);
      }
    };
    request.open("POST", url(`documents/batch${query}`));
    request.setRequestHeader("Content-Type", "application/x-tar");
    request.send(body);
  });
  return { done, abort: () => request.abort() };
}

/**
 * Call back with each server-sent event of an answer. Fails unless the last one is an answer.
 * @param {string} where
 * @param {unknown} body
 * @param {(event: string, data: any) => void} take
 * @param {AbortSignal} signal
 */
export async function stream(where, body, take, signal) {
  const response = await send("POST", where, body, { signal });
  const reader = /** @type {ReadableStream<BufferSource>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let name = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      return { value: "", done: true };
    });
    const lines = (rest + (value ?? "")).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith("event: ")) name = line.slice(7).trim();
      else if (line.startsWith("data: ")) {
        const data = JSON.parse(line.slice(6));
        if (name === "problem") throw new ApiError(data.detail, data.code);
        take(name, data);
        if (name === "answer") return;
      }
    }
    if (done) throw new ApiError("The connection was lost before the answer was complete.", "connection");
  }
}

/**
 * Follow the server-sent events of a route for as long as the page is open, also after the connection was lost.
 * @param {string} where
 * @param {Record<string, (data: any) => void>} take functions by the name of the event
 * @param {(isConnected: boolean) => void} connected called whenever the connection is there or lost
 */
export function follow(where, take, connected) {
  /** @type {EventSource} */ let events;
  const open = () => {
    events = new EventSource(url(where));
    for (const name of Object.keys(take)) events.addEventListener(name, (event) => take[name](JSON.parse(event.data)));
    events.onopen = () => connected(true);
    events.onerror = () => {
      connected(false);
      // The browser would wait longer each time, and give up after an error page, such as that of a proxy.
      events.close();
      setTimeout(open, RECONNECT_MILLISECONDS);
    };
  };
  open();
  // A connection can end without a word: a request that fails is the reason to look.
  window.addEventListener("unreachable", () => {
    if (events.readyState !== EventSource.OPEN) return;
    events.close();
    open();
  });
}
