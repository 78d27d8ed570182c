// A session of the intercom wire as revision F makes one, with its strictness; and, where it announces so, the
// newer frames on top: the second stack that our broker and clients are tested with.
//
// Rule 1: nothing here was taken from the product under test; the newer frames are as its documentation says,
//   because nobody else's are public.
// Rule 2: a frame that it did not negotiate, one before `registered`, a second `registered`, or a malformed one
//   is a protocol error: it disconnects.
// Rule 3: it is driven by lines of JSON on stdin and tells what happens to it as `{event, ...}`.
//
// Source: reference/intercom.md 1.1 to 1.4, 1.7, 2, 4.1, 4.3, 4.4.

import crypto from "node:crypto";
import process from "node:process";
import {
  connectSocket,
  displayedTarget,
  encode,
  fail,
  frameReader,
  isLabel,
  isMessage,
  isObject,
  isRow,
  nativePeerId,
  options,
  resolveTarget,
  say,
  serve,
} from "./intercom-wire.mjs";

const REGISTRATION_MS = 10_000;
const SEND_MS = 8_000;
const LIST_MS = 5_000;
const ASK_MS = 120_000;
const CLOSE_MS = 2_000;
const PENDING_MAX = 100;
const PAGE_UNITS_MAX = 16_384;
const CAPABILITIES = ["guardedDelivery", "receiptReads", "lastReads", "wakeOutcomes"];

// The rows that F takes: a row whose only fault is its projectId keeps the rest, any other faulty one is dropped.
function rowsOf(given) {
  const rows = [];
  for (const row of given) {
    if (isRow(row)) rows.push(row);
    else if (isObject(row)) {
      const { projectId, ...rest } = row;
      if (projectId !== undefined && isRow(rest)) rows.push(rest);
    }
  }
  return rows;
}

class Session {
  constructor(given) {
    this.path = given.socket;
    this.announced = given.announce ? given.announce.split(",") : [];
    this.granted = new Set();
    this.sessionId = null;
    this.socket = null;
    this.sends = new Map();
    this.lists = new Map();
    this.reads = new Map();
    this.asking = null;
    this.pending = new Map(); // asks of others by message id
    this.entries = []; // finished answers, oldest first
    this.facts = new Map(); // receipts by message id
    this.onWake = { ok: true };
    this.isHushed = false; // takes reads and wakes, answers none
  }

  async connect(session, { requestedId, extra = {}, wait = REGISTRATION_MS }) {
    const socket = await connectSocket(this.path);
    this.socket = socket;
    this.granted.clear();
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
    const frame = { type: "register", session, ...extra };
    if (requestedId !== undefined) frame.requestedId = requestedId;
    for (const name of this.announced) frame[name] = 1;
    return new Promise((done, failed) => {
      this.registering = { done, failed };
      this.timer = setTimeout(() => this.lose("no registration in time"), wait);
      socket.write(encode(frame));
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
    for (const waiting of [this.sends, this.lists, this.reads]) {
      for (const { failed } of waiting.values()) failed(gone);
      waiting.clear();
    }
    this.asking?.failed(gone);
    this.registering?.failed(gone);
    this.registering = this.asking = null;
    this.sessionId = null;
    say({ event: "lost", reason });
  }

  // Every frame from the broker; what is not in its table is a protocol error.
  take(frame) {
    if (this.socket.destroyed) return;
    const isFirst = this.sessionId === null;
    if (isFirst !== (frame.type === "registered")) throw fail("protocol", `${frame.type} out of order`);
    const needs = { last_read: "lastReads", last_response: "lastReads", receipt_read: "receiptReads", receipt_response: "receiptReads", wake_request: "wakeOutcomes", wake_failed: "wakeOutcomes" };
    if (frame.type in needs && !this.granted.has(needs[frame.type])) throw fail("protocol", `${frame.type} was not negotiated`);
    const hear = this.frames[frame.type];
    if (!hear) throw fail("protocol", `unknown type ${frame.type}`);
    hear(frame);
  }

  frames = {
    registered: (frame) => {
      if (!isLabel(frame.sessionId)) throw fail("protocol", "registered without an id");
      clearTimeout(this.timer);
      this.sessionId = frame.sessionId;
      for (const name of CAPABILITIES) {
        if (frame[name] !== 1) continue;
        if (!this.announced.includes(name)) throw fail("protocol", `${name} was not asked for`);
        this.granted.add(name);
      }
      this.registering.done({ sessionId: frame.sessionId, granted: [...this.granted], frame });
      this.registering = null;
    },
    sessions: (frame) => {
      if (typeof frame.requestId !== "string" || !Array.isArray(frame.sessions)) throw fail("protocol", "sessions");
      this.settle(this.lists, frame.requestId, rowsOf(frame.sessions));
    },
    message: ({ from, message }) => {
      if (!isRow(from) || !isMessage(message)) throw fail("protocol", "malformed message");
      this.heard(from, message);
    },
    delivered: (frame) => this.acked(frame, { outcome: "delivered" }),
    delivery_queued: (frame) => this.acked(frame, { outcome: "queued", reason: this.reason(frame) }),
    delivery_failed: (frame) => this.acked(frame, { outcome: "failed", reason: this.reason(frame) }),
    session_left: ({ sessionId }) => {
      if (typeof sessionId !== "string") throw fail("protocol", "session_left");
      for (const [id, { from }] of this.pending) if (from.id === sessionId) this.pending.delete(id);
      say({ event: "left", sessionId });
      if (this.asking?.to === sessionId) {
        this.asking.failed(fail("peer_left", "Reply peer disconnected before answering"));
      }
    },
    last_read: (frame) => this.answerRead("last_page", frame, (wanted) => this.page(wanted)),
    receipt_read: (frame) => this.answerRead("receipt_facts", frame, (wanted) => this.receipt(wanted)),
    last_response: (frame) => this.settle(this.reads, frame.requestId, frame),
    receipt_response: (frame) => this.settle(this.reads, frame.requestId, frame),
    wake_request: ({ token, sessionId, messageId }) => {
      say({ event: "wake", token, sessionId, messageId });
      if (!this.isHushed) this.write({ type: "wake_outcome", token, ...this.onWake });
    },
    wake_failed: ({ messageId, detail }) => {
      say({ event: "wake_failed", messageId, detail });
      if (this.asking?.id === messageId) {
        this.asking.failed(fail("wake_failed", `${detail}; the accepted question may still arrive later`));
      }
    },
  };

  reason(frame) {
    if (typeof frame.reason !== "string") throw fail("protocol", "an answer without a reason");
    return frame.reason;
  }

  acked(frame, answer) {
    if (typeof frame.messageId !== "string") throw fail("protocol", "an answer without an id");
    this.settle(this.sends, frame.messageId, { ...answer, messageId: frame.messageId, frame });
  }

  // An answer that nobody waits for is late, and ignored.
  settle(waiting, key, value) {
    waiting.get(key)?.done(value);
  }

  request(waiting, key, frame, wait) {
    if (waiting.has(key)) throw fail("duplicate", `${key} is already waited for`);
    const data = encode(frame); // before anybody waits: what is too large is not written
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

  write(frame) {
    this.socket.write(encode(frame));
  }

  list(wait = LIST_MS) {
    const requestId = crypto.randomUUID();
    return this.request(this.lists, requestId, { type: "list", requestId }, wait);
  }

  // The client fills in `steer` for what is no ask.
  message({ text, id = crypto.randomUUID(), attachments, ...rest }) {
    const content = attachments ? { text, attachments } : { text };
    const message = { id, timestamp: Date.now(), ...rest, content };
    if (!message.expectsReply && message.delivery === undefined && !message.passive) message.delivery = "steer";
    return message;
  }

  send(to, message, wait = SEND_MS) {
    return this.request(this.sends, message.id, { type: "send", to, message }, wait);
  }

  heard(from, message) {
    if (message.replyTo !== undefined && this.asking?.to === from.id && this.asking.id === message.replyTo) {
      this.asking.done({ text: message.content.text, attachments: message.content.attachments ?? [], id: message.id });
      return;
    }
    if (message.expectsReply === true && this.pending.size < PENDING_MAX) this.pending.set(message.id, { from, message });
    say({ event: "message", from, message });
  }

  // One ask at a time; the waiter stands before the question leaves.
  async ask({ to, text, delivery, wait = ASK_MS, ...rest }) {
    if (this.asking) throw fail("busy", "Already waiting for a reply");
    const message = this.message({ text, expectsReply: true, ...(delivery && { delivery }), ...rest });
    let done, failed;
    const reply = new Promise((...both) => ([done, failed] = both));
    reply.catch(() => {}); // it may end before anybody waits for it
    const timer = setTimeout(() => failed(fail("reply_timeout", `No reply to ${message.id} in time`)), wait);
    this.asking = { id: message.id, to, done, failed };
    try {
      if (delivery === undefined) {
        const target = (await this.list().catch(() => [])).find((row) => row.id === to);
        if (target?.acceptsAsks === false) {
          const ack = await this.send(to, message);
          return { reason: "peer_idle", messageId: message.id, ack };
        }
      }
      const ack = await this.send(to, message);
      if (ack.outcome === "failed") throw fail("delivery_failed", ack.reason);
      say({ event: "asked", messageId: message.id, outcome: ack.outcome });
      return { reply: await reply, messageId: message.id };
    } finally {
      clearTimeout(timer);
      this.asking = null;
    }
  }

  // Which of the asks that wait here is meant.
  async reply({ text, replyTo, to, ...rest }) {
    const known = [...this.pending.values()];
    let meant;
    if (replyTo !== undefined) {
      meant = known.filter(({ from, message }) => message.id === replyTo && (to === undefined || from.id === to));
    } else if (to !== undefined) {
      const wanted = resolveTarget(known.map(({ from }) => from), to).found;
      meant = known.filter(({ from }) => from.id === wanted);
    } else meant = known;
    if (meant.length === 0) throw fail("no_pending_reply", "No active intercom context to reply to");
    if (meant.length > 1) throw fail("ambiguous_reply_target", "Multiple pending asks \u2014 specify `to`");
    const [{ from, message }] = meant;
    const ack = await this.send(from.id, this.message({ text, replyTo: message.id, ...rest }));
    if (ack.outcome !== "failed") this.pending.delete(message.id);
    return ack;
  }

  answerRead(type, frame, find) {
    const { token, from, type: _, ...wanted } = frame;
    if (typeof token !== "string" || !isRow(from)) throw fail("protocol", "malformed read");
    say({ event: "read", token, from: from.id, wanted });
    if (!this.isHushed) this.write({ type, token, ...find(wanted) });
  }

  page({ entryId, offset = 0, limit = PAGE_UNITS_MAX }) {
    const entry = entryId === undefined ? this.entries.at(-1) : this.entries.find((one) => one.id === entryId);
    if (!entry && entryId !== undefined) return { error: "entry_not_found" };
    if (!entry) return { entryId: null, text: "", offset: 0, nextOffset: null, empty: true };
    const text = entry.text.slice(offset, offset + Math.min(limit, PAGE_UNITS_MAX));
    const next = offset + text.length;
    return { entryId: entry.id, text, offset, nextOffset: next < entry.text.length ? next : null };
  }

  receipt({ rootSessionId, messageId }) {
    if (rootSessionId !== this.root) return { error: "publication_unavailable" };
    const receipt = this.facts.get(messageId);
    return receipt ? { receipt } : { error: "receipt_not_found" };
  }

  read(kind, to, body, wait = LIST_MS) {
    const requestId = crypto.randomUUID();
    return this.request(this.reads, requestId, { type: `${kind}_request`, requestId, to, ...body }, wait);
  }

  async leave() {
    const { socket } = this;
    if (!socket || socket.destroyed) return;
    const gone = new Promise((done) => socket.once("close", done));
    if (this.sessionId !== null) this.write({ type: "unregister" });
    socket.end();
    const timer = setTimeout(() => socket.destroy(), CLOSE_MS);
    await gone;
    clearTimeout(timer);
  }
}

const given = options();
const session = new Session(given);
const words = {
  register: ({ session: facts = {}, ...rest }) => {
    const mine = { cwd: process.cwd(), model: "f-model", status: "idle", ...facts };
    for (const [name, value] of Object.entries(mine)) if (value === null) delete mine[name];
    session.root = mine.rootSessionId;
    return session.connect(mine, rest);
  },
  native_id: ({ session: id }) => nativePeerId(id),
  who: () => ({ sessionId: session.sessionId, isConnected: session.sessionId !== null, granted: [...session.granted] }),
  list: ({ wait }) => session.list(wait),
  resolve: async ({ to }) => resolveTarget(await session.list(), to),
  displayed: async ({ peer }) => displayedTarget(await session.list(), peer),
  send: ({ to, wait, do: _, id: __, message_id, ...rest }) =>
    session.send(to, session.message({ ...rest, ...(message_id && { id: message_id }) }), wait),
  // As somebody who checks nothing: the message is the test's, and so is the id that the answer bears.
  send_raw: ({ to, message, answer = message?.id, wait }) =>
    session.request(session.sends, answer, { type: "send", ...(to !== undefined && { to }), message }, wait ?? SEND_MS),
  ask: ({ do: _, id: __, message_id, ...rest }) => session.ask({ ...rest, ...(message_id && { id: message_id }) }),
  reply: ({ do: _, id: __, ...rest }) => session.reply(rest),
  cancel: () => session.asking?.failed(fail("cancelled", "Cancelled")),
  pending: () => [...session.pending.values()].map(({ from, message }) => ({ from: from.id, messageId: message.id })),
  presence: ({ facts }) => session.write({ type: "presence", ...facts }),
  unregister: ({ parked }) => session.write({ type: "unregister", ...(parked && { parked }) }),
  read: ({ kind, to, body = {}, wait }) => session.read(kind, to, body, wait),
  entries: ({ entries }) => void (session.entries = entries),
  facts: ({ receipts }) => void (session.facts = new Map(receipts.map((one) => [one.messageId, one]))),
  on_wake: ({ outcome }) => void (session.onWake = outcome),
  hush: ({ hushed }) => void (session.isHushed = hushed),
  frame: ({ frame }) => session.write(frame),
  raw: async ({ parts }) => {
    for (const { hex, text, repeat = 1, delayMs = 0 } of parts) {
      if (delayMs) await new Promise((go) => setTimeout(go, delayMs));
      if (!session.socket.writable) return;
      session.socket.write(hex === undefined ? Buffer.from(text.repeat(repeat), "utf8") : Buffer.from(hex.repeat(repeat), "hex"));
    }
  },
  // What is written one byte at a time is one frame still.
  dribble: async ({ frame }) => {
    for (const byte of encode(frame)) {
      session.socket.write(Buffer.from([byte]));
      await new Promise((go) => setImmediate(go));
    }
  },
  leave: () => session.leave(),
  break: () => void session.socket.destroy(),
};

say({ event: "ready" });
serve(words, () => session.leave());
