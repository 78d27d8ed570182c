// Frames and forms of the intercom wire, written from its reference alone: what the second stacks here share.
//
// Rule 1: nothing here was taken from the product under test, and nothing of it is read.
// Rule 2: plain `net`, `fs`, `crypto`; no package, so that it runs wherever Node does.
// Rule 3: a form is checked as its revision checks it: what one of them forbids, the other may take.
//
// Source: reference/intercom.md 1.1, 1.3, 1.4, 1.5, 6.2.

import crypto from "node:crypto";
import fs from "node:fs";
import net from "node:net";
import process from "node:process";
import readline from "node:readline";

export const FRAME_BYTES_MAX = 1_048_576;
export const REPLACE_QUEUED = "Queued for replace-mode delivery";
const CONNECT_MS = 500;

export const fail = (code, text) => Object.assign(new Error(text), { code });
export const say = (thing) => process.stdout.write(JSON.stringify(thing) + "\n");
export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// ---------------------------------------------------------------- frames

export function encode(frame) {
  const payload = Buffer.from(JSON.stringify(frame), "utf8");
  if (payload.length > FRAME_BYTES_MAX) {
    throw fail("too_large", `Intercom message too large (${payload.length} bytes; max ${FRAME_BYTES_MAX})`);
  }
  const header = Buffer.alloc(4);
  header.writeUInt32BE(payload.length);
  return Buffer.concat([header, payload]);
}

export const sizeOf = (frame) => Buffer.byteLength(JSON.stringify(frame), "utf8");

// Returns a function that takes chunks and hands each frame on, in order; it throws where the bytes are no frame,
// and what stands behind that in the same chunk is dropped.
export function frameReader(take) {
  let held = Buffer.alloc(0);
  return (chunk) => {
    held = held.length ? Buffer.concat([held, chunk]) : chunk;
    while (held.length >= 4) {
      const length = held.readUInt32BE(0);
      if (length > FRAME_BYTES_MAX) throw fail("protocol", `frame of ${length} bytes`);
      if (held.length < 4 + length) return;
      // Not TextDecoder: it would take a byte order mark away, and JSON.parse is to refuse it.
      const frame = JSON.parse(held.subarray(4, 4 + length).toString("utf8"));
      held = held.subarray(4 + length);
      if (!isObject(frame) || typeof frame.type !== "string") throw fail("protocol", "not an object with a type");
      take(frame);
    }
  };
}

// Connects only to what is a socket of this user itself, not a link to one.
export function connectSocket(path) {
  return new Promise((done, failed) => {
    let found;
    try {
      found = fs.lstatSync(path);
    } catch (error) {
      failed(fail("no_broker", error.message));
      return;
    }
    if (!found.isSocket() || found.uid !== process.getuid()) {
      failed(fail("unsafe_socket", `${path} is not a socket of this user`));
      return;
    }
    const socket = net.connect({ path });
    const timer = setTimeout(() => socket.destroy(fail("no_broker", "no connection in time")), CONNECT_MS);
    socket.once("error", (error) => {
      clearTimeout(timer);
      failed(fail("no_broker", error.message));
    });
    socket.once("connect", () => {
      clearTimeout(timer);
      socket.removeAllListeners("error");
      done(socket);
    });
  });
}

// ---------------------------------------------------------------- forms of revision F

const has = (thing, name) => Object.hasOwn(thing, name);
export const isLabel = (value) => typeof value === "string" && value !== "" && !/[\u0000-\u001f\u007f-\u009f]/.test(value);
export const isText = (value) =>
  typeof value === "string" && !/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/.test(value);
const isFlag = (value) => typeof value === "boolean";
const isCount = (value) => Number.isInteger(value) && value >= 0;
const isProject = (value) => typeof value === "string" && /^[0-9a-f]{64}$/.test(value);

const SESSION_MAY = {
  name: isLabel,
  status: isLabel,
  projectId: isProject,
  lastSeen: Number.isFinite,
  lastIntercomActivity: Number.isFinite,
  pendingAsks: isCount,
  acceptsAsks: isFlag,
};

export function isSession(value) {
  if (!isObject(value) || !isLabel(value.cwd) || !isLabel(value.model)) return false;
  return Object.entries(SESSION_MAY).every(([name, is]) => !has(value, name) || is(value[name]));
}

export const isRow = (value) => isSession(value) && isLabel(value.id);

const DELIVERIES = ["queue", "steer", "passive"];

function isAttachment(value) {
  if (!isObject(value) || !["file", "snippet", "context"].includes(value.type)) return false;
  return isLabel(value.name) && isText(value.content) && (!has(value, "language") || isLabel(value.language));
}

export function isMessage(value) {
  if (!isObject(value) || !isLabel(value.id) || !Number.isFinite(value.timestamp)) return false;
  const { content } = value;
  if (!isObject(content) || !isText(content.text)) return false;
  if (has(content, "attachments")) {
    if (!Array.isArray(content.attachments) || !content.attachments.every(isAttachment)) return false;
  }
  if (has(value, "replyTo") && !isLabel(value.replyTo)) return false;
  if (has(value, "expectsReply") && !isFlag(value.expectsReply)) return false;
  if (has(value, "passive") && !isFlag(value.passive)) return false;
  if (has(value, "delivery") && !DELIVERIES.includes(value.delivery)) return false;
  if (value.passive === true && has(value, "delivery") && value.delivery !== "passive") return false;
  if ((value.passive === true || value.delivery === "passive") && value.expectsReply === true) return false;
  if (has(value, "queueMode")) {
    if (value.delivery !== "queue" || !["stack", "replace"].includes(value.queueMode)) return false;
  }
  if (!has(value, "threadId")) return value.queueMode !== "replace";
  return value.queueMode === "replace" && typeof value.threadId === "string" && isLabel(value.threadId.trim());
}

// ---------------------------------------------------------------- forms of revision N

const isString = (value) => typeof value === "string";
const isExtension = (value) =>
  isObject(value) && /^[a-z0-9][a-z0-9._/-]{0,63}$/.test(value.namespace) && isFlag(value.ownerEligible);

export function isRecordedRow(value) {
  if (!isObject(value) || !isString(value.id) || !isString(value.cwd) || !isString(value.model)) return false;
  if (!["pid", "startedAt", "lastActivity"].every((name) => Number.isFinite(value[name]))) return false;
  if (!["name", "status", "tmuxPane"].every((name) => !has(value, name) || isString(value[name]))) return false;
  if (!has(value, "extensions")) return true;
  return Array.isArray(value.extensions) && value.extensions.length <= 32 && value.extensions.every(isExtension);
}

export function isRecordedMessage(value) {
  if (!isObject(value) || !isString(value.id) || !value.id || !Number.isFinite(value.timestamp)) return false;
  if (!isObject(value.content) || !isString(value.content.text)) return false;
  if (has(value, "replyTo") && !isString(value.replyTo)) return false;
  return !has(value, "expectsReply") || isFlag(value.expectsReply);
}

// ---------------------------------------------------------------- targets, as revision F's tool resolves them

export function resolveTarget(rows, to) {
  const wanted = to.trim().toLowerCase();
  const equal = rows.filter((row) => row.id.toLowerCase() === wanted);
  if (equal.length === 1) return { found: equal[0].id };
  if (equal.length > 1) return { ambiguous: equal.map((row) => row.id) };
  const named = rows.filter((row) => (row.name ?? "").trim().toLowerCase() === wanted);
  const begun = rows.filter((row) => row.id.toLowerCase().startsWith(wanted));
  if (wanted.length >= 1 && wanted.length <= 7 && begun.length && !named.length) return { tooShort: true };
  const meant = new Set([...named, ...(wanted.length >= 8 || named.length ? begun : [])].map((row) => row.id));
  if (meant.size === 1) return { found: [...meant][0] };
  return meant.size ? { ambiguous: [...meant] } : { found: to };
}

export function displayedTarget(rows, id) {
  const names = new Set(rows.map((row) => (row.name ?? "").trim().toLowerCase()));
  for (let length = 8; length < id.length; length += 1) {
    const start = id.slice(0, length).toLowerCase();
    const isUnique = rows.every((row) => row.id === id || !row.id.toLowerCase().startsWith(start));
    if (isUnique && !names.has(start)) return id.slice(0, length);
  }
  return id;
}

export const nativePeerId = (session) => "pi-" + crypto.createHash("sha256").update(session, "utf8").digest("hex").slice(0, 32);

// ---------------------------------------------------------------- who tests

export function options() {
  const given = {};
  for (const word of process.argv.slice(2)) {
    const [name, ...value] = word.replace(/^--/, "").split("=");
    given[name] = value.join("=");
  }
  return given;
}

// Serves a test that speaks in lines of JSON: `{id, do, ...}` is answered with `{id, ok}` or `{id, error}`.
export function serve(words, close) {
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("line", async (line) => {
    const asked = JSON.parse(line);
    try {
      say({ id: asked.id, ok: (await words[asked.do](asked)) ?? null });
    } catch (error) {
      say({ id: asked.id, error: { code: error.code ?? "defect", text: error.stack } });
    }
  });
  lines.on("close", async () => {
    await close();
    process.exit(0);
  });
}
