// A broker of the intercom wire as revision F behaves, no more: the second stack that our clients are tested with.
//
// Rule 1: nothing here was taken from the product under test, and nothing of it is read.
// Rule 2: what breaks framing, form or order destroys exactly that socket, without a word.
// Rule 3: everybody sees everybody; it knows no capability of a newer revision and echoes none.
// Rule 4: it does not steal: it starts only where nobody listens. (Revision F's own takes the socket from a live
//   broker; no client can rely on that.)
//
// Usage: intercom-broker-f.mjs [ignored words ...] --socket=PATH [--idle=MS] [--stage=MS]
//
// Source: reference/intercom.md 1.1 to 1.4, 2 "Broker resolution", 4.2, 6.2, 6.3.

import crypto from "node:crypto";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import process from "node:process";
import { FRAME_BYTES_MAX, REPLACE_QUEUED, connectSocket, encode, frameReader, isMessage, isSession, options, sizeOf } from "./intercom-wire.mjs";

const given = options();
const SOCKET = given.socket;
const IDLE_MS = Number(given.idle || 5_000);
const STAGE_MS = Number(given.stage || 1_500);
const STAGED_PER_SENDER_MAX = 100;
const STAGED_MAX = 1_000;
const PRESENCE = ["name", "status", "model", "pendingAsks", "acceptsAsks", "lastIntercomActivity"];

const sessions = new Map(); // by id, in the order of registration
const staged = new Map(); // by sender, recipient and thread
let idle = null;

class Link {
  constructor(socket) {
    this.socket = socket;
    this.session = null;
    const read = frameReader((frame) => {
      if (!socket.destroyed) this.take(frame);
    });
    socket.on("data", (chunk) => {
      try {
        read(chunk);
      } catch {
        socket.destroy();
      }
    });
    socket.on("error", (error) => process.stderr.write(`socket: ${error.message}\n`));
    socket.on("close", () => this.leave());
  }

  write(frame) {
    if (this.socket.writable) this.socket.write(encode(frame));
  }

  take(frame) {
    const isRegistration = frame.type === "register";
    if (isRegistration === (this.session !== null)) throw new Error("out of order");
    const hear = this[`on_${frame.type}`];
    if (!Object.hasOwn(HEARD, frame.type) || !hear) throw new Error("unknown type");
    if (this.session) this.session.lastSeen = Date.now();
    hear.call(this, frame);
  }

  on_register({ session, requestedId }) {
    if (!isSession(session)) throw new Error("session");
    const isGranted = typeof requestedId === "string" && /^[a-zA-Z0-9_-]{8,80}$/.test(requestedId) && !sessions.has(requestedId);
    const id = isGranted ? requestedId : crypto.randomUUID();
    this.session = { ...session, id, lastSeen: session.lastSeen ?? Date.now() };
    sessions.set(id, this);
    clearTimeout(idle);
    this.write({ type: "registered", sessionId: id });
  }

  on_unregister() {
    this.leave();
  }

  on_list({ requestId }) {
    if (typeof requestId !== "string") throw new Error("requestId");
    const rows = [...sessions.values()].map((link) => link.session);
    this.write({ type: "sessions", requestId, sessions: rows });
  }

  on_presence(frame) {
    const changes = Object.fromEntries(PRESENCE.filter((name) => name in frame).map((name) => [name, frame[name]]));
    const after = { ...this.session, ...changes, lastSeen: Date.now() };
    if (!isSession(after)) throw new Error("presence");
    this.session = after;
  }

  on_send({ to, message }) {
    const failed = (messageId, reason) => this.write({ type: "delivery_failed", messageId, reason });
    if (!isMessage(message)) return failed("unknown", "Invalid message format");
    if (typeof to !== "string") return failed(message.id, "Invalid message format");
    const meant = resolve(to);
    if (meant.length === 0) return failed(message.id, "Session not found");
    if (meant.length > 1) {
      return failed(message.id, `Multiple sessions named "${to}" are connected. Use the session ID instead.`);
    }
    const [target] = meant;
    if (message.queueMode === "replace" && (message.expectsReply === true || isIdle(target.session))) {
      return this.stage(target, message);
    }
    const reason = deliver(this, target, message);
    return reason ? failed(message.id, reason) : this.write({ type: "delivered", messageId: message.id });
  }

  stage(target, message) {
    const key = JSON.stringify([this.session.id, target.session.id, message.threadId]);
    const mine = [...staged.values()].filter((one) => one.sender === this).length;
    if (!staged.has(key) && (mine >= STAGED_PER_SENDER_MAX || staged.size >= STAGED_MAX)) {
      const reason = "Replace-mode delivery queue is full; retry after pending updates are delivered.";
      this.write({ type: "delivery_failed", messageId: message.id, reason });
      return;
    }
    clearTimeout(staged.get(key)?.timer);
    const timer = setTimeout(() => {
      staged.delete(key);
      deliver(this, target, message);
    }, STAGE_MS);
    staged.set(key, { sender: this, target, message, timer });
    this.write({ type: "delivery_queued", messageId: message.id, reason: REPLACE_QUEUED });
  }

  leave() {
    if (this.session === null) return;
    const { id } = this.session;
    this.last = this.session; // who it was, for what it still has staged
    this.session = null;
    sessions.delete(id);
    for (const [key, one] of staged) {
      if (one.target !== this && !(one.sender === this && one.message.expectsReply === true)) continue;
      clearTimeout(one.timer);
      staged.delete(key);
    }
    for (const other of sessions.values()) other.write({ type: "session_left", sessionId: id });
    wait();
  }
}

const HEARD = { register: 1, unregister: 1, list: 1, presence: 1, send: 1 };

const isIdle = ({ status = "", acceptsAsks }) => (status === "idle" || status.startsWith("idle ")) && acceptsAsks !== false;

function resolve(to) {
  const exact = sessions.get(to);
  if (exact) return [exact];
  const wanted = to.toLowerCase();
  return [...sessions.values()].filter((link) => link.session.name?.toLowerCase() === wanted);
}

// Returns why not, or nothing. The message is written before its sender hears of it.
function deliver(sender, target, message) {
  if (target.session === null || !target.socket.writable) return "Recipient disconnected before delivery";
  const now = Date.now();
  const from = { ...(sender.session ?? sender.last), lastIntercomActivity: now };
  const frame = { type: "message", from, message };
  if (sizeOf(frame) > FRAME_BYTES_MAX) return `Intercom message too large (${sizeOf(frame)} bytes; max ${FRAME_BYTES_MAX})`;
  if (sender.session) sender.session.lastIntercomActivity = now;
  target.session.lastIntercomActivity = now;
  target.write(frame);
  return null;
}

function wait() {
  clearTimeout(idle);
  if (sessions.size === 0) idle = setTimeout(end, IDLE_MS);
}

// ---------------------------------------------------------------- the process

const folder = path.dirname(SOCKET);
const record = path.join(folder, "broker.pid");
fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
const found = fs.lstatSync(folder);
if (!found.isDirectory() || found.uid !== process.getuid()) throw new Error("Unsafe intercom socket directory");
fs.chmodSync(folder, 0o700);
const isTaken = await connectSocket(SOCKET).then(
  (socket) => (socket.destroy(), true),
  () => false,
);
if (isTaken) throw new Error("somebody listens already");
fs.rmSync(SOCKET, { force: true });

const server = net.createServer((socket) => new Link(socket));
server.listen(SOCKET, () => {
  fs.chmodSync(SOCKET, 0o600);
  fs.writeFileSync(record, String(process.pid), { mode: 0o600 });
  process.stdout.write(`broker started on ${SOCKET}\n`);
});

function end() {
  for (const { socket } of sessions.values()) socket.end();
  server.close();
  for (const file of [SOCKET, record]) fs.rmSync(file, { force: true });
  process.exit(0);
}

process.on("SIGTERM", end);
process.on("SIGINT", end);
