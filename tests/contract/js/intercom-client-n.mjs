// A session of the intercom wire as revision N makes one, with its strictness: the second stack that our broker
// is tested with.
//
// Rule 1: nothing here was taken from the product under test, and nothing of it is read.
// Rule 2: an unknown frame, a row or sender without a process and its times, and any frame before `registered`
//   make it disconnect.
// Rule 3: before each send it lists, and names the exact endpoint that it means, with its epoch; a rebound one is
//   resolved once more, under the same message id.
//
// Source: reference/intercom.md 1.1, 1.5, 1.8, 10.

import crypto from "node:crypto";
import process from "node:process";
import { connectSocket, encode, fail, frameReader, isRecordedMessage, isRecordedRow, options, say, serve } from "./intercom-wire.mjs";

const REGISTRATION_MS = 10_000;
const SEND_MS = 10_000;
const LIST_MS = 5_000;
const CLOSE_MS = 2_000;

class Session {
  constructor(path) {
    this.path = path;
    this.sessionId = null;
    this.sequence = 0;
    this.sends = new Map();
    this.lists = new Map();
    this.healths = new Map();
    this.states = [];
  }

  async open() {
    const socket = await connectSocket(this.path);
    this.socket = socket;
    const read = frameReader((frame) => this.take(frame));
    socket.on("data", (chunk) => {
      if (socket.destroyed) return;
      try {
        read(chunk);
      } catch (error) {
        this.lose(error.message);
      }
    });
    socket.on("error", () => {});
    socket.on("close", () => this.lost("closed"));
  }

  async register(session, { sessionId, scopeId, wait = REGISTRATION_MS, extra = {} }) {
    if (!this.socket || this.socket.destroyed) await this.open();
    const frame = { type: "register", session, ...extra };
    if (sessionId !== undefined) frame.sessionId = sessionId;
    if (scopeId !== undefined) frame.scopeId = scopeId;
    return new Promise((done, failed) => {
      this.registering = { done, failed };
      this.timer = setTimeout(() => this.lose("no registration in time"), wait);
      this.socket.write(encode(frame));
    });
  }

  lose(why) {
    if (this.why === undefined) this.why = why;
    this.socket.destroy();
  }

  lost(why) {
    clearTimeout(this.timer);
    const reason = this.why ?? why;
    this.why = undefined;
    const gone = fail("disconnected", `Client disconnected: ${reason}`);
    for (const waiting of [this.sends, this.lists, this.healths]) {
      for (const { failed } of waiting.values()) failed(gone);
      waiting.clear();
    }
    this.registering?.failed(gone);
    this.registering = null;
    this.sessionId = null;
    say({ event: "lost", reason });
  }

  take(frame) {
    if (this.socket.destroyed) return;
    const isFirst = this.sessionId === null;
    const mayBeEarly = ["registered", "health_ok", "error"].includes(frame.type);
    if ((isFirst && !mayBeEarly) || (!isFirst && frame.type === "registered")) {
      throw fail("protocol", `${frame.type} out of order`);
    }
    const hear = this.frames[frame.type];
    if (!hear) throw fail("protocol", `unknown type ${frame.type}`);
    hear(frame);
  }

  peer(row, why) {
    if (!isRecordedRow(row)) throw fail("protocol", why);
    return row;
  }

  frames = {
    registered: (frame) => {
      if (typeof frame.sessionId !== "string") throw fail("protocol", "registered without an id");
      clearTimeout(this.timer);
      this.sessionId = frame.sessionId;
      this.registering.done({ sessionId: frame.sessionId, features: frame.features ?? [], frame });
      this.registering = null;
    },
    health_ok: (frame) => this.settle(this.healths, frame.requestId, frame),
    sessions: ({ requestId, sessions }) => {
      if (typeof requestId !== "string" || !Array.isArray(sessions)) throw fail("protocol", "Invalid sessions message");
      for (const row of sessions) this.peer(row, "Invalid sessions message");
      this.settle(this.lists, requestId, sessions);
    },
    session_joined: ({ session }) => say({ event: "joined", session: this.peer(session, "session_joined") }),
    presence_update: ({ session }) => say({ event: "presence", session: this.peer(session, "presence_update") }),
    session_left: ({ sessionId }) => {
      if (typeof sessionId !== "string") throw fail("protocol", "session_left");
      say({ event: "left", sessionId });
    },
    message: ({ from, message }) => {
      this.peer(from, "Invalid message sender");
      if (!isRecordedMessage(message)) throw fail("protocol", "malformed message");
      say({ event: "message", from, message });
    },
    delivered: (frame) => this.acked(frame, "delivered"),
    delivery_failed: (frame) => this.acked(frame, "failed"),
    message_receipt: ({ from, receipt }) => say({ event: "receipt", from: this.peer(from, "message_receipt").id, receipt }),
    message_control: ({ from, control }) => say({ event: "control", from: this.peer(from, "message_control").id, control }),
    extension_owner: (frame) => say({ event: "bus", ...frame }),
    extension_message: (frame) => say({ event: "bus", ...frame }),
    extension_state: (frame) => say({ event: "bus", ...frame }),
    extension_state_result: (frame) => say({ event: "bus", ...frame }),
    error: ({ error }) => say({ event: "error", error }),
  };

  acked(frame, outcome) {
    if (typeof frame.messageId !== "string") throw fail("protocol", "an answer without an id");
    if (outcome === "failed" && typeof frame.reason !== "string") throw fail("protocol", "a failure without a reason");
    this.settle(this.sends, frame.messageId, { outcome, ...frame });
  }

  settle(waiting, key, value) {
    waiting.get(key)?.done(value);
  }

  request(waiting, key, frame, wait) {
    if (waiting.has(key)) throw fail("duplicate", `${key} is already waited for`);
    const data = encode(frame);
    return new Promise((done, failed) => {
      const timer = setTimeout(() => over(failed)(fail("timeout", `${frame.type} was not answered in time`)), wait);
      const over = (end) => (value) => {
        clearTimeout(timer);
        waiting.delete(key);
        end(value);
      };
      waiting.set(key, { done: over(done), failed: over(failed) });
      this.socket.write(data);
    });
  }

  health(wait = LIST_MS) {
    const requestId = crypto.randomUUID();
    return this.request(this.healths, requestId, { type: "health", requestId }, wait);
  }

  list(wait = LIST_MS) {
    const requestId = crypto.randomUUID();
    return this.request(this.lists, requestId, { type: "list", requestId }, wait);
  }

  async exact(to) {
    const rows = await this.list();
    const equal = rows.filter((row) => row.id === to);
    const named = rows.filter((row) => (row.name ?? "").toLowerCase() === to.toLowerCase());
    const begun = rows.filter((row) => row.id.startsWith(to));
    const meant = [equal, named, begun].find((some) => some.length) ?? [];
    if (meant.length !== 1) return {};
    return { targetId: meant[0].id, ...(meant[0].endpointEpoch && { targetEpoch: meant[0].endpointEpoch }) };
  }

  async send({ to, text, id = crypto.randomUUID(), attachments, target, ...rest }) {
    this.sequence += 1;
    const content = attachments ? { text, attachments } : { text };
    const message = { id, timestamp: Date.now(), senderSequence: this.sequence, ...rest, content };
    const once = async () => {
      const exact = target ?? (await this.exact(to));
      const both = exact.targetEpoch === undefined && target === undefined ? {} : exact;
      return this.request(this.sends, id, { type: "send", to, ...both, message }, SEND_MS);
    };
    const ack = await once();
    return ack.code === "E_TARGET_REBOUND" && target === undefined ? once() : ack;
  }

  async leave() {
    const { socket } = this;
    if (!socket || socket.destroyed) return;
    const gone = new Promise((done) => socket.once("close", done));
    if (this.sessionId !== null) socket.write(encode({ type: "unregister" }));
    socket.end();
    const timer = setTimeout(() => socket.destroy(), CLOSE_MS);
    await gone;
    clearTimeout(timer);
  }
}

const given = options();
const session = new Session(given.socket);
const started = Date.now();
const words = {
  health: async ({ wait }) => {
    if (!session.socket || session.socket.destroyed) await session.open();
    return session.health(wait);
  },
  open: () => session.open(),
  register: ({ session: facts = {}, ...rest }) => {
    const mine = { cwd: process.cwd(), model: "n-model", status: "idle", pid: process.pid, startedAt: started, lastActivity: Date.now(), ...facts };
    for (const [name, value] of Object.entries(mine)) if (value === null) delete mine[name];
    return session.register(mine, rest);
  },
  who: () => ({ sessionId: session.sessionId, isConnected: session.sessionId !== null }),
  list: ({ wait }) => session.list(wait),
  send: ({ do: _, id: __, message_id, ...rest }) => session.send({ ...rest, ...(message_id && { id: message_id }) }),
  cancel_message: ({ message_id }) =>
    session.request(session.sends, message_id, { type: "cancel_message", messageId: message_id }, SEND_MS),
  presence: ({ facts }) => void session.socket.write(encode({ type: "presence", ...facts })),
  frame: ({ frame }) => void session.socket.write(encode(frame)),
  frames: ({ frame, count }) => void session.socket.write(Buffer.concat(Array(count).fill(encode(frame)))),
  leave: () => session.leave(),
  break: () => void session.socket.destroy(),
};

say({ event: "ready" });
serve(words, () => session.leave());
