// A client of the intercom that no model drives: it finds peers, sends under a complete guard, and reads receipts
// and last answers. One file, Node's own modules only; nothing is initialised by importing it.
//
// Rule 1: it never starts a broker, never reconnects, never sends anything twice, and keeps no record: what is to
//   survive belongs to the caller, written down before the attempt.
// Rule 2: it writes no frame that the broker did not announce, and no send without its whole guard; what cannot be
//   sent so is refused before anything is written. Nothing is downgraded or sent elsewhere.
// Rule 3: every request ends: by its answer, by its time, or with the connection. An error with `outcomeKnown`
//   false says that a send may have been taken: only `receipt`, with the same id and target, can tell.
// Rule 4: a frame that it does not know, or that is malformed or out of order, ends the connection.
//
// Source: specification of the intercom, "Supported non-model client"; reference/intercom.md 1.1 to 1.4, 1.7, 4.4,
// 6.1, 6.2. Names and places of the newer frames are this product's own: docs/javascript-client.md.

import { randomUUID } from "node:crypto";
import { lstatSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { isAbsolute, join } from "node:path";

const FRAME_BYTES_MAX = 1_048_576; // payload of one frame, its length not counted
const PATH_BYTES_MAX = 100;
const PAGE_UNITS_MAX = 16_384; // UTF-16 code units of one page
const OUTSTANDING_MAX = 1_024; // requests that wait for their answers
const WAIT_MS_MAX = 2 ** 31 - 1; // what a timer of Node can count
const CONNECT_MS = 500;
const REGISTRATION_MS = 10_000;
const SEND_MS = 8_000;
const LIST_MS = 5_000;
const CLOSE_MS = 2_000;
const VARIABLE = "PI_INTERCOM_RUNTIME_DIR";
const CAPABILITIES = ["guardedDelivery", "receiptReads", "lastReads"];
const DELIVERIES = ["steer", "queue", "passive"];
const GUARD = ["rootSessionId", "peerId", "incarnation", "applicationGuard"];

/** What went wrong: `code` is stable, the text is for a person. `outcomeKnown` false: a send may have been taken. */
export class IntercomError extends Error {
  constructor(code, text, { outcomeKnown = true, ...rest } = {}) {
    super(text, rest);
    this.name = "IntercomError";
    this.code = code;
    this.outcomeKnown = outcomeKnown;
  }
}

// ---------------------------------------------------------------- forms

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isLabel = (value) => typeof value === "string" && value !== "" && !/[\u0000-\u001f\u007f-\u009f]/.test(value);
const isText = (value) =>
  typeof value === "string" && !/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/.test(value);
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const isDelivery = (value) => DELIVERIES.includes(value);
const isTool = (value) => typeof value === "string" && /^[A-Za-z_][A-Za-z0-9_.-]{0,127}$/.test(value);
const isUuid = (value) => typeof value === "string" && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value);
const isDigest = (value) => typeof value === "string" && /^[0-9a-f]{64}$/.test(value);
const isWait = (value) => Number.isInteger(value) && value > 0 && value <= WAIT_MS_MAX;
const isFalse = (value) => value === false;
const isFunction = (value) => typeof value === "function";
const isRequested = (value) => typeof value === "string" && /^[a-zA-Z0-9_-]{8,80}$/.test(value);

// What is said beside "invalid" of a field whose form cannot be guessed from its name.
const FORMS = new Map([
  [isTool, "a name of letters, digits and _ . - that begins with a letter or _, 128 at most"],
  [isUuid, "a UUID"],
  [isDigest, "a SHA-256 in 64 lower-case hexadecimal digits"],
]);

const invalid = (text) => new IntercomError("invalid_input", text);

// Returns a copy with exactly the named fields; a missing, unknown or malformed one is refused by its name.
function checked(what, value, needed, optional = {}) {
  if (!isObject(value)) throw invalid(`${what} must be an object`);
  for (const name of Object.keys(value)) {
    if (!Object.hasOwn(needed, name) && !Object.hasOwn(optional, name)) throw invalid(`${what}.${name} is unknown`);
  }
  const copy = {};
  for (const [name, is] of [...Object.entries(needed), ...Object.entries(optional)]) {
    const item = value[name];
    if (item === undefined && Object.hasOwn(optional, name)) continue;
    if (!is(item)) {
      const form = FORMS.has(is) ? `: it must be ${FORMS.get(is)}` : "";
      throw invalid(`${what}.${name} is ${item === undefined ? "missing" : "invalid"}${form}`);
    }
    copy[name] = item;
  }
  return copy;
}

const isSession = (value) => isObject(value) && isLabel(value.id) && isLabel(value.cwd) && isLabel(value.model);
const ROW_MAY = {
  name: isLabel,
  status: isLabel,
  lastSeen: Number.isFinite,
  lastIntercomActivity: Number.isFinite,
  pendingAsks: isCount,
  acceptsAsks: (value) => typeof value === "boolean",
};

// A row that is malformed is nobody; one whose only fault is its project keeps the rest.
function rowsOf(given) {
  const isGood = (row) =>
    isSession(row) && Object.entries(ROW_MAY).every(([name, is]) => !Object.hasOwn(row, name) || is(row[name]));
  return given.filter(isGood).map((row) => {
    const { projectId, ...rest } = row;
    return isDigest(projectId) ? row : rest;
  });
}

// ---------------------------------------------------------------- the place

// The directory that holds the broker's socket: the one that the environment names, else this user's shared one.
function runtimeDirectory() {
  const named = process.env[VARIABLE];
  if (named === undefined) {
    const folder = `pi-intercom-${process.getuid()}`;
    if (process.platform !== "android") return join("/tmp", folder);
    return join(process.env.PREFIX ? join(process.env.PREFIX, "tmp") : tmpdir(), folder);
  }
  if (!isAbsolute(named)) {
    throw new IntercomError("invalid_runtime_directory", `${VARIABLE} must be an absolute path`);
  }
  // Not normalised: what stands before `..` may be a link. Without a slash behind it, so that a link is seen as one.
  return named.replace(/(?<=.)\/+$/, "");
}

// Returns the socket's path once nobody else could have put it there: the directory is this user's, private, no link.
function socketPath() {
  const folder = runtimeDirectory();
  const path = `${folder}/broker.sock`;
  if (Buffer.byteLength(path, "utf8") > PATH_BYTES_MAX) {
    throw new IntercomError("invalid_runtime_directory", `${path} is longer than ${PATH_BYTES_MAX} bytes`);
  }
  const look = (at) => {
    try {
      return lstatSync(at);
    } catch (cause) {
      throw new IntercomError("no_broker", `no intercom broker at ${path}`, { cause });
    }
  };
  const directory = look(folder);
  if (!directory.isDirectory() || directory.uid !== process.getuid() || (directory.mode & 0o077) !== 0) {
    throw new IntercomError("unsafe_runtime_directory", `${folder} is not a private directory of this user`);
  }
  const socket = look(path);
  if (!socket.isSocket() || socket.uid !== process.getuid()) {
    throw new IntercomError("unsafe_runtime_directory", `${path} is not a socket of this user`);
  }
  return path;
}

function opened(path) {
  return new Promise((resolve, reject) => {
    const socket = connect({ path });
    const failed = (cause) => {
      clearTimeout(timer);
      socket.destroy();
      reject(new IntercomError("no_broker", `no intercom broker answers at ${path}`, { cause }));
    };
    const timer = setTimeout(() => failed(new Error(`no connection within ${CONNECT_MS} ms`)), CONNECT_MS);
    socket.once("error", failed);
    socket.once("connect", () => {
      clearTimeout(timer);
      socket.off("error", failed);
      resolve(socket);
    });
  });
}

// ---------------------------------------------------------------- frames

function encoded(frame) {
  const payload = Buffer.from(JSON.stringify(frame), "utf8");
  if (payload.length > FRAME_BYTES_MAX) {
    const text = `Intercom message too large (${payload.length} bytes; max ${FRAME_BYTES_MAX})`;
    throw new IntercomError("too_large", text);
  }
  const header = Buffer.alloc(4);
  header.writeUInt32BE(payload.length);
  return Buffer.concat([header, payload]);
}

const broken = (text) => new IntercomError("protocol", text);

// Takes chunks, hands each whole frame on, in order; throws where the bytes are none.
function reader(take) {
  let chunks = [];
  let held = 0;
  let wanted = 4;
  return (chunk) => {
    chunks.push(chunk);
    held += chunk.length;
    while (held >= wanted) {
      const data = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
      const length = data.readUInt32BE(0);
      if (length > FRAME_BYTES_MAX) throw broken(`a frame of ${length} bytes`);
      wanted = 4 + length;
      chunks = [data];
      if (held < wanted) return;
      chunks = [data.subarray(wanted)];
      held -= wanted;
      const payload = data.subarray(4, wanted).toString("utf8");
      wanted = 4;
      let frame;
      try {
        frame = JSON.parse(payload);
      } catch (cause) {
        throw new IntercomError("protocol", "a frame that is no JSON", { cause });
      }
      if (!isObject(frame) || typeof frame.type !== "string") throw broken("a frame without a type");
      take(frame);
    }
  };
}

// ---------------------------------------------------------------- the connection

class Connection {
  #socket;
  #onError;
  #waits;
  #sessionId = null;
  #granted = new Set();
  #sends = new Map();
  #asked = new Map();
  #registering = null;
  #closed;
  #leaving = null;
  #cause = null;

  constructor(socket, { sendTimeoutMs = SEND_MS, listTimeoutMs = LIST_MS, onError = null }) {
    this.#socket = socket;
    this.#onError = onError;
    this.#waits = { send: sendTimeoutMs, list: listTimeoutMs };
    const read = reader((frame) => this.#take(frame));
    socket.on("data", (chunk) => {
      if (this.#cause || this.#leaving) return;
      try {
        read(chunk);
      } catch (error) {
        this.#lose(error);
      }
    });
    socket.on("error", (error) => this.#lose(new IntercomError("disconnected", error.message, { cause: error })));
    this.#closed = new Promise((resolve) => {
      socket.once("close", () => {
        if (!this.#leaving) this.#lose(new IntercomError("disconnected", "the broker closed the connection"));
        resolve();
      });
    });
  }

  get sessionId() {
    return this.#sessionId;
  }

  register(session, requestedId) {
    const frame = { type: "register", session: { ...session, acceptsAsks: false } };
    if (requestedId !== undefined) frame.requestedId = requestedId;
    for (const name of CAPABILITIES) frame[name] = 1;
    const data = encoded(frame);
    return new Promise((resolve, reject) => {
      const text = `no registration within ${REGISTRATION_MS} ms`;
      const timer = setTimeout(() => this.#lose(new IntercomError("timeout", text)), REGISTRATION_MS);
      this.#registering = {
        resolve: () => (clearTimeout(timer), resolve()),
        reject: (error) => (clearTimeout(timer), reject(error)),
      };
      this.#socket.write(data);
    });
  }

  #take(frame) {
    const isFirst = this.#sessionId === null;
    if (isFirst !== (frame.type === "registered")) throw broken(`${frame.type} out of order`);
    const hear = Object.hasOwn(this.#heard, frame.type) ? this.#heard[frame.type] : undefined;
    if (!hear) throw broken(`a frame of unknown type ${JSON.stringify(frame.type.slice(0, 80))}`);
    hear(frame);
  }

  #heard = {
    registered: (frame) => {
      if (!isLabel(frame.sessionId)) throw broken("a registration without an id");
      this.#sessionId = frame.sessionId;
      for (const name of CAPABILITIES) if (frame[name] === 1) this.#granted.add(name);
      this.#registering.resolve();
      this.#registering = null;
    },
    sessions: (frame) => {
      if (typeof frame.requestId !== "string" || !Array.isArray(frame.sessions)) throw broken("a malformed list");
      if (frame.error !== undefined) this.#refuse(frame.requestId, "list_failed", frame.error);
      else this.#settle(this.#asked, frame.requestId, rowsOf(frame.sessions));
    },
    // Mail is for those who can read it: nobody here can, and its sender was told that no asks are taken.
    message: (frame) => {
      if (!isSession(frame.from) || !isObject(frame.message)) throw broken("a malformed message");
    },
    session_left: (frame) => {
      if (typeof frame.sessionId !== "string") throw broken("a malformed departure");
    },
    delivered: (frame) => this.#acknowledged(frame, { accepted: true, delivered: true, queued: false }),
    delivery_queued: (frame) =>
      this.#acknowledged(frame, { accepted: true, delivered: false, queued: true, reason: this.#reason(frame) }),
    delivery_failed: (frame) =>
      this.#acknowledged(frame, { accepted: false, delivered: false, queued: false, reason: this.#reason(frame) }),
    receipt_response: (frame) => this.#answered("receiptReads", frame),
    last_response: (frame) => this.#answered("lastReads", frame),
    receipt_read: (frame) => this.#unreadable("receiptReads", "receipt_facts", "publication_unavailable", frame),
    last_read: (frame) => this.#unreadable("lastReads", "last_page", "unsupported", frame),
  };

  #reason(frame) {
    if (typeof frame.reason !== "string") throw broken("an answer without a reason");
    return frame.reason;
  }

  #acknowledged(frame, result) {
    if (typeof frame.messageId !== "string") throw broken("an answer without an id");
    this.#settle(this.#sends, frame.messageId, { messageId: frame.messageId, ...result });
  }

  #answered(capability, frame) {
    if (!this.#granted.has(capability)) throw broken(`${frame.type} was not negotiated`);
    if (typeof frame.requestId !== "string") throw broken("an answer without an id");
    if (frame.error !== undefined) this.#refuse(frame.requestId, frame.error, "the read was refused");
    else this.#settle(this.#asked, frame.requestId, frame);
  }

  // This client has no history and publishes nothing: whoever asks it is told so.
  #unreadable(capability, type, error, frame) {
    if (!this.#granted.has(capability)) throw broken(`${frame.type} was not negotiated`);
    if (typeof frame.token !== "string") throw broken("a read without a token");
    this.#socket.write(encoded({ type, token: frame.token, error }));
  }

  // An answer that nobody waits for came late, and is ignored.
  #settle(waiting, key, value) {
    waiting.get(key)?.resolve(value);
  }

  #refuse(requestId, code, text) {
    if (!isLabel(code)) throw broken("an error without a code");
    this.#asked.get(requestId)?.reject(new IntercomError(code, `${code}: ${text}`));
  }

  // Ends the connection for a reason of its own or of the far end; whoever waits is told first.
  #lose(error) {
    if (this.#cause || this.#leaving) return;
    this.#cause = error;
    this.#over("the connection was lost", error);
    if (this.#onError) this.#onError(error);
  }

  #over(text, cause) {
    const isJoined = this.#sessionId !== null;
    this.#sessionId = null;
    for (const { reject } of [...this.#asked.values()]) reject(new IntercomError("disconnected", text, { cause }));
    for (const { reject } of [...this.#sends.values()]) {
      reject(new IntercomError("disconnected", text, { cause, outcomeKnown: false }));
    }
    this.#registering?.reject(new IntercomError("registration_failed", cause?.message ?? text, { cause }));
    this.#registering = null;
    if (this.#cause || !isJoined) this.#socket.destroy();
  }

  #request(waiting, key, frame, waitMs, outcomeKnown) {
    if (this.#sessionId === null) throw new IntercomError("disconnected", "not connected");
    if (waiting.has(key)) throw new IntercomError("duplicate_pending", `${key} waits for its answer already`);
    if (this.#sends.size + this.#asked.size >= OUTSTANDING_MAX) {
      throw new IntercomError("busy", `${OUTSTANDING_MAX} requests wait for their answers`);
    }
    const data = encoded(frame);
    return new Promise((resolve, reject) => {
      const ended = (end) => (value) => {
        clearTimeout(timer);
        waiting.delete(key);
        end(value);
      };
      const text = `${frame.type} was not answered within ${waitMs} ms`;
      const timer = setTimeout(
        () => waiting.get(key).reject(new IntercomError("timeout", text, { outcomeKnown })),
        waitMs,
      );
      waiting.set(key, { resolve: ended(resolve), reject: ended(reject) });
      this.#socket.write(data);
    });
  }

  #needs(capability) {
    if (this.#sessionId === null) throw new IntercomError("disconnected", "not connected");
    if (!this.#granted.has(capability)) {
      throw new IntercomError("unsupported", `the broker did not announce ${capability}; nothing was sent`);
    }
  }

  list() {
    const requestId = randomUUID();
    return this.#request(this.#asked, requestId, { type: "list", requestId }, this.#waits.list, true);
  }

  send(to, { messageId, text, replyHint, ...rest }) {
    this.#needs("guardedDelivery");
    const message = { id: messageId, timestamp: Date.now(), content: { text }, ...rest };
    if (replyHint !== undefined) message.replyHint = replyHint;
    return this.#request(this.#sends, messageId, { type: "send", to, message }, this.#waits.send, false);
  }

  read(kind, to, body) {
    this.#needs(`${kind}Reads`);
    const requestId = randomUUID();
    const frame = { type: `${kind}_request`, requestId, to, ...body };
    return this.#request(this.#asked, requestId, frame, this.#waits.list, true);
  }

  disconnect() {
    if (this.#leaving) return this.#leaving;
    const isOpen = this.#cause === null && !this.#socket.destroyed;
    const timer = setTimeout(() => this.#socket.destroy(), CLOSE_MS);
    this.#leaving = this.#closed.finally(() => clearTimeout(timer));
    if (isOpen) {
      this.#socket.end(encoded({ type: "unregister" }));
      this.#socket.resume();
      this.#over("this client disconnected");
    }
    return this.#leaving;
  }
}

// ---------------------------------------------------------------- what is offered

const invalidAnswer = (text) => new IntercomError("invalid_answer", text);

function pageOf(frame, wanted) {
  const { entryId, text, offset, nextOffset } = frame;
  if (frame.empty === true) {
    if (wanted.entryId !== undefined) throw invalidAnswer("an empty history for a pinned entry");
    return { entryId: null, text: "", offset: 0, nextOffset: null, empty: true };
  }
  if (!isLabel(entryId) || typeof text !== "string") throw invalidAnswer("a malformed page");
  if (offset !== wanted.offset) throw invalidAnswer("a page of another place");
  if (wanted.entryId !== undefined && entryId !== wanted.entryId) throw invalidAnswer("a page of another entry");
  if (text.length > wanted.limit) throw invalidAnswer(`a page of ${text.length} code units`);
  if (nextOffset !== null && (nextOffset !== offset + text.length || text === "")) {
    throw invalidAnswer("a page that leads nowhere");
  }
  return { entryId, text, offset, nextOffset, empty: false };
}

function receiptOf({ receipt }, wanted) {
  if (!isObject(receipt) || receipt.version !== 1) throw invalidAnswer("not a receipt of version 1");
  if (receipt.rootSessionId !== wanted.rootSessionId || receipt.messageId !== wanted.messageId) {
    throw invalidAnswer("a receipt of another root or message");
  }
  if (!isDigest(receipt.textSha256)) throw invalidAnswer("a receipt without the digest of its text");
  return receipt;
}

function targetOf(to) {
  if (!isLabel(to)) throw invalid("the target must be the id of a peer");
  return to;
}

function guarded(to, given) {
  const needed = { messageId: isLabel, text: isText, expectsReply: isFalse, delivery: isDelivery, guard: isObject };
  const message = checked("message", given, needed, { replyHint: isObject });
  message.guard = checked("guard", message.guard, Object.fromEntries(GUARD.map((name) => [name, isLabel])));
  if (message.guard.peerId !== targetOf(to)) throw invalid("guard.peerId must be the target itself");
  if (message.replyHint !== undefined) {
    const hint = { tool: isTool, commandId: isUuid };
    message.replyHint = checked("replyHint", message.replyHint, hint, { commandFingerprint: isDigest });
  }
  return message;
}

/**
 * Joins the intercom of this user as a client that no model drives.
 *
 * @param {object} options
 * @param {false} options.spawn Literally `false`: no broker is ever started.
 * @param {{name?: string, cwd: string, model: string, rootSessionId: string, incarnation: string}} options.session
 *   What peers see. `model` is a label. The root and the incarnation are the caller's own, from its record.
 * @param {string} [options.requestedId] Wanted id, 8 to 80 letters, digits, `-`, `_`; it is a wish.
 * @param {number} [options.sendTimeoutMs] How long a send waits for the broker's answer; 8000.
 * @param {number} [options.listTimeoutMs] How long a list or a read waits; 5000.
 * @param {(error: Error) => void} [options.onError] Told once when the connection is lost, never after `disconnect`.
 * @returns {Promise<object>} The connected client; rejects with `IntercomError` where there is no connection.
 */
export async function connectIntercom(options) {
  if (!isObject(options) || options.spawn !== false) throw invalid("options.spawn must be literally false");
  const given = checked(
    "options",
    options,
    { spawn: isFalse, session: isObject },
    { requestedId: isRequested, sendTimeoutMs: isWait, listTimeoutMs: isWait, onError: isFunction },
  );
  const needed = { cwd: isLabel, model: isLabel, rootSessionId: isLabel, incarnation: isLabel };
  const session = checked("session", given.session, needed, { name: isLabel });
  if (typeof process.getuid !== "function") {
    throw new IntercomError("unsupported_platform", "the intercom needs Unix sockets and user numbers");
  }
  const connection = new Connection(await opened(socketPath()), given);
  await connection.register(session, given.requestedId);

  return Object.freeze({
    /** Id of this connection at the broker; null once it is lost. */
    get sessionId() {
      return connection.sessionId;
    },
    /** Whether the transport stands; says nothing of any recipient. */
    isConnected: () => connection.sessionId !== null,
    /** Resolves with everybody that this client may see, itself included. */
    listSessions: async () => connection.list(),
    /**
     * Sends to one exact peer under its complete guard. Resolves with the broker's answer
     * `{messageId, accepted, delivered, queued, reason?}`; `accepted` false is a definite no. Rejects where nothing
     * was sent, or, with `outcomeKnown` false, where nobody knows.
     */
    send: async (to, message) => connection.send(to, guarded(to, message)),
    /** Resolves with what the peer's root recorded of a message; rejects with `receipt_not_found` and the like. */
    receipt: async (to, wanted) => {
      const body = checked("receipt", wanted, { rootSessionId: isLabel, messageId: isLabel });
      return receiptOf(await connection.read("receipt", targetOf(to), body), body);
    },
    /** Resolves with a page `{entryId, text, offset, nextOffset, empty}` of the peer's last answer. */
    last: async (to, wanted = {}) => {
      const isLimit = (value) => isCount(value) && value > 0 && value <= PAGE_UNITS_MAX;
      const optional = { entryId: isLabel, offset: isCount, limit: isLimit };
      const body = { offset: 0, limit: PAGE_UNITS_MAX, ...checked("last", wanted, {}, optional) };
      if (body.offset > 0 && body.entryId === undefined) throw invalid("last.offset needs the entryId that it is of");
      return pageOf(await connection.read("last", targetOf(to), body), body);
    },
    /** Closes this connection; resolves once it is closed. Whoever waits is told. */
    disconnect: async () => connection.disconnect(),
  });
}
