// A window of the pi-peers wire, written from its specification alone: the second stack that ours is tested with.
//
// Rule 1: nothing here was taken from the product under test, and nothing of it is read; where the
//   specification leaves something open, this peer does what the reference calls the safe choice (U1 to U24).
// Rule 2: plain `net`, `fs`, `crypto`; no package, so that it runs wherever Node does.
// Rule 3: it is driven by lines of JSON on stdin, `{id, do, ...}`, answers each with `{id, ok}` or `{id, error}`,
//   and tells what happens to it as `{event, ...}`.
//
// Source: spec/pi-peers.md; reference/pi-peers-and-harness-doors.md 1.

import crypto from "node:crypto";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import readline from "node:readline";

const PROTOCOL = 1;
const LINE_BYTES_MAX = 1024 * 1024;
const SCAN_MS = 500;
const DEDUPE_MS = 30_000;
const HELD_MS = 300_000;
const SUBSCRIPTION_MS = 12 * 3_600_000;
const QUEUE_MAX = 50;
const CLOSE_MS = 5_000;
const TAG = "cross-session-message";
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

const say = (thing) => process.stdout.write(JSON.stringify(thing) + "\n");
const sha256 = (text) => crypto.createHash("sha256").update(text, "utf8").digest("hex");
const strip = (address) => String(address ?? "").replace(/^(uds|pipe):/, "");
const fail = (code, text) => Object.assign(new Error(text), { code });

// ---------------------------------------------------------------- processes

function processStart(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
  } catch {
    return null;
  }
}

function pidDomain() {
  if (process.platform !== "linux") return process.platform;
  let machine = "unknown";
  try {
    machine = fs.readFileSync("/etc/machine-id", "utf8").trim();
  } catch {
    // A container may have none; all windows in it then say the same.
  }
  return `linux:${machine}:${fs.readlinkSync("/proc/self/ns/pid")}`;
}

function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

// ---------------------------------------------------------------- the registry

class Registry {
  constructor(directory) {
    this.directory = directory;
    this.sockets = path.join(directory, "socks");
    this.cache = null;
    fs.mkdirSync(this.sockets, { recursive: true, mode: 0o700 });
    fs.chmodSync(directory, 0o700);
  }

  recordPath(pid) {
    return path.join(this.directory, `${pid}.json`);
  }

  keyPath(record) {
    return path.join(this.directory, `${record.pid}.${sha256(record.socketPath)}.key`);
  }

  write(target, value, mode = 0o600) {
    const beside = path.join(this.directory, `.${process.pid}.${crypto.randomBytes(6).toString("hex")}.tmp`);
    fs.writeFileSync(beside, JSON.stringify(value), { mode, flag: "wx" });
    fs.renameSync(beside, target);
    this.cache = null;
  }

  publish(record, token) {
    const { procStart, pidDomain: domain } = record;
    this.write(this.keyPath(record), { peerToken: token, procStart, pidDomain: domain });
    this.write(this.recordPath(record.pid), record);
  }

  unpublish(record) {
    for (const file of [this.recordPath(record.pid), this.keyPath(record), record.socketPath]) {
      fs.rmSync(file, { force: true });
    }
    this.cache = null;
  }

  read(pid) {
    try {
      return JSON.parse(fs.readFileSync(this.recordPath(pid), "utf8"));
    } catch {
      return null;
    }
  }

  token(record) {
    try {
      return JSON.parse(fs.readFileSync(this.keyPath(record), "utf8")).peerToken ?? null;
    } catch {
      return null;
    }
  }

  // A record of this domain whose process is gone, or whose key is, is removed; nobody else's ever.
  isSwept(record) {
    if (record.pidDomain !== pidDomain()) return false;
    if (!isRunning(record.pid) || processStart(record.pid) !== record.procStart) return true;
    return !fs.existsSync(this.keyPath(record));
  }

  list({ fresh = false } = {}) {
    if (!fresh && this.cache && Date.now() - this.cache.at < SCAN_MS) return this.cache.records;
    const records = [];
    for (const name of fs.readdirSync(this.directory)) {
      const found = /^(\d+)\.json$/.exec(name);
      const record = found && this.read(Number(found[1]));
      if (!record || record.pid !== Number(found[1]) || typeof record.socketPath !== "string") continue;
      if (!this.isSwept(record)) {
        records.push(record);
        continue;
      }
      fs.rmSync(path.join(this.directory, name), { force: true });
      for (const key of fs.readdirSync(this.directory)) {
        if (key.startsWith(`${record.pid}.`) && key.endsWith(".key")) {
          fs.rmSync(path.join(this.directory, key), { force: true });
        }
      }
    }
    this.cache = { at: Date.now(), records };
    return records;
  }
}

// ---------------------------------------------------------------- wrapper

const inAttribute = (text) =>
  text.replace(/[&<>"]/g, (mark) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[mark]);
const outOfAttribute = (text) =>
  text.replace(/&(lt|gt|quot|amp);/g, (_, word) => ({ lt: "<", gt: ">", quot: '"', amp: "&" })[word]);

function wrap(address, name, body) {
  const safe = body.replace(new RegExp(`<(/?${TAG})`, "gi"), "&lt;$1");
  return `<${TAG} from="${inAttribute(address)}" from-name="${inAttribute(name)}">${safe}</${TAG}>`;
}

// Returns the body, or null for a wrapper that is forged, nested or unbalanced.
function unwrap(content, address) {
  if (!new RegExp(`</?${TAG}`, "i").test(content)) return content;
  const whole = new RegExp(`^\\s*<${TAG}((?:\\s+[a-z-]+="[^"]*")*)\\s*>([\\s\\S]*)</${TAG}>\\s*$`).exec(content);
  if (!whole || new RegExp(`</?${TAG}`, "i").test(whole[2])) return null;
  const from = /\sfrom="([^"]*)"/.exec(whole[1]);
  return from && strip(outOfAttribute(from[1])) === strip(address) ? whole[2] : null;
}

// ---------------------------------------------------------------- what bounds a sender

class Bucket {
  constructor(burst, perSecond) {
    Object.assign(this, { burst, perSecond, level: burst, at: Date.now() });
  }

  take() {
    const now = Date.now();
    this.level = Math.min(this.burst, this.level + ((now - this.at) / 1000) * this.perSecond);
    this.at = now;
    if (this.level < 1) return false;
    this.level -= 1;
    return true;
  }
}

// ---------------------------------------------------------------- the window

class Window {
  constructor(options) {
    this.options = options;
    this.registry = new Registry(options.dir);
    this.peerToken = crypto.randomBytes(16).toString("hex");
    this.childToken = crypto.randomBytes(16).toString("hex");
    this.name = options.name;
    this.formerNames = [];
    this.status = "idle";
    this.flippedAt = Date.now();
    this.accept = process.env.PI_PEERS_ACCEPT || "accept";
    this.onShutdown = options.shutdown || "deny";
    this.senders = new Map();
    this.everybody = new Bucket(120, 2);
    this.children = new Bucket(120, 12);
    this.verdicts = new Map(); // message id: {status, at}
    this.contents = new Map(); // sender and hash of the text: when it came
    this.accepted = 0; // since the last idle
    this.held = new Map();
    this.sent = new Set();
    this.awaited = new Map(); // nonce: until when
    this.subscribers = new Map(); // nonce: {address, until}
    this.paces = new Map();
    this.socketPath = path.join(this.registry.sockets, `js-${crypto.randomBytes(8).toString("hex")}.sock`);
    this.contextUsage = undefined;
    this.protocol = PROTOCOL;
  }

  record() {
    const root = projectRoot(this.options.cwd);
    return {
      version: "0.1.0",
      pid: process.pid,
      sessionId: this.options.session,
      cwd: this.options.cwd,
      ...(root && { projectRoot: root }),
      name: this.name,
      nameSource: this.options.named ? "user" : "derived",
      formerNames: this.formerNames,
      kind: "interactive",
      status: this.status,
      statusUpdatedAt: this.flippedAt,
      startedAt: Math.round(Date.now() - process.uptime() * 1000),
      procStart: processStart(process.pid),
      pidDomain: pidDomain(),
      socketPath: this.socketPath,
      peerProtocol: this.protocol,
      features: ["notify_idle"],
      ...(this.contextUsage !== undefined && { contextUsage: this.contextUsage }),
    };
  }

  async open() {
    this.server = net.createServer({ allowHalfOpen: true }, (link) => this.serve(link));
    await new Promise((done) => this.server.listen(this.socketPath, done));
    fs.chmodSync(this.socketPath, 0o600);
    this.registry.publish(this.record(), this.peerToken);
  }

  close() {
    this.server.close();
    this.registry.unpublish(this.record());
  }

  // ------------------------------------------------------------ receiving

  grade(token) {
    const same = (own) => {
      const [one, other] = [Buffer.from(String(token)), Buffer.from(own)];
      return one.length === other.length && crypto.timingSafeEqual(one, other);
    };
    return same(this.peerToken) ? "peer" : same(this.childToken) ? "child" : null;
  }

  serve(link) {
    let rest = Buffer.alloc(0);
    let grade = null;
    const over = (why) => {
      say({ event: "closed", why });
      link.destroy();
    };
    const timer = setTimeout(() => grade === null && over("no authentication in time"), this.options.budget);
    link.on("error", () => {});
    link.on("close", () => clearTimeout(timer));
    link.on("end", () => link.end());
    link.on("data", (data) => {
      rest = Buffer.concat([rest, data]);
      for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10)) {
        const line = rest.subarray(0, at);
        rest = rest.subarray(at + 1);
        if (line.length > LINE_BYTES_MAX) return over("a line is too long");
        let frame;
        try {
          frame = JSON.parse(line.toString("utf8"));
        } catch {
          return over("a line is no JSON");
        }
        if (grade === null) {
          grade = frame?.type === "auth" ? this.grade(frame.token) : null;
          if (grade === null) return over("authentication failed");
          clearTimeout(timer);
        } else if (frame?.type === "auth" || !UUID.test(frame?.msg_id ?? "")) {
          return over("a frame is malformed");
        } else {
          this.take(frame, grade);
        }
      }
      if (rest.length > LINE_BYTES_MAX) over("a line is too long");
    });
  }

  take(frame, grade) {
    say({ event: "frame", grade, frame });
    if (frame.type === "user") return this.takeUser(frame, grade);
    if (frame.type !== "control") return undefined;
    switch (frame.action) {
      case "peer_message_status":
        return this.takeStatus(frame);
      case "notify_when_idle":
        return this.takeSubscription(frame);
      case "peer_idle_notice":
        return this.takeIdleNotice(frame);
      case "shutdown":
        return this.takeShutdown(frame, grade);
      case "shutdown_response":
        return say({ event: "shutdown_response", inReplyTo: frame.inReplyTo, outcome: frame.outcome });
      case "rename":
        this.registry.cache = null; // the record says the name, the frame only that it changed
        return say({ event: "renamed", from: strip(frame.from), name: frame.name ?? frame.newName });
      default:
        return undefined;
    }
  }

  // Rate, dedupe, hops, queue, the person, the model: in that order.
  takeUser(frame, grade) {
    const from = strip(frame.from);
    const verdict = this.judge(frame, from, grade);
    if (verdict.status) this.tell(frame, verdict.status, verdict.reason);
  }

  judge(frame, from, grade) {
    if (!this.senders.has(from)) this.senders.set(from, new Bucket(30, 0.5));
    const isWithin = grade === "child" ? this.children.take() : this.senders.get(from).take() && this.everybody.take();
    if (!isWithin) return { status: "dropped:rate-limited" };
    const body = unwrap(String(frame.content ?? ""), from);
    if (body === null) return { status: "dropped:malformed-wrapper" };
    const earlier = this.verdicts.get(frame.msg_id);
    if (earlier) return { status: earlier };
    const digest = `${from}\0${sha256(body)}`;
    if (Date.now() - (this.contents.get(digest) ?? -Infinity) < DEDUPE_MS) return { status: "dropped:duplicate" };
    this.contents.set(digest, Date.now());
    const hops = Array.isArray(frame.hopChain) ? frame.hopChain.map(strip) : [];
    if (grade !== "child" && (hops.length > 28 || hops.filter((hop) => hop === this.socketPath).length >= 10)) {
      return this.settle(frame, "dropped:hop-limit");
    }
    if (this.accepted >= QUEUE_MAX) return this.settle(frame, "dropped:queue-full");
    if (grade !== "child" && this.accept === "off") return this.settle(frame, "refused");
    if (grade !== "child" && this.accept === "ask") {
      const timer = setTimeout(() => this.consent(frame.msg_id, "expired"), HELD_MS);
      this.held.set(frame.msg_id, { frame, body, timer });
      say({ event: "held", msg_id: frame.msg_id, from });
      return this.settle(frame, "held");
    }
    this.inject(frame, body);
    // Where the test speaks for the window, it says itself what became of a message.
    return this.accept === "silent" ? {} : this.settle(frame, "delivered");
  }

  settle(frame, status) {
    this.verdicts.set(frame.msg_id, status);
    return { status };
  }

  inject(frame, body) {
    this.accepted += 1;
    const [from, name] = [strip(frame.from), String(frame.fromName ?? "")];
    const text = wrap(from, name, body);
    say({ event: "message", msg_id: frame.msg_id, from, fromName: name, priority: frame.priority, body, text });
  }

  consent(messageId, outcome) {
    const waiting = this.held.get(messageId);
    if (!waiting) throw fail("unknown", "nothing of this id is held");
    this.held.delete(messageId);
    clearTimeout(waiting.timer);
    if (outcome === "delivered") this.inject(waiting.frame, waiting.body);
    this.verdicts.set(messageId, outcome);
    this.tell(waiting.frame, outcome);
  }

  tell(frame, status) {
    const reason = status.startsWith("dropped:") ? { drop_reason: status.slice(8), reason: status.slice(8) } : {};
    const answer = { orig_msg_id: frame.msg_id, inReplyTo: frame.msg_id, status, ...reason };
    this.control(strip(frame.reply_to || frame.from), "peer_message_status", answer).catch(() => {});
  }

  takeStatus(frame) {
    const original = frame.orig_msg_id ?? frame.inReplyTo ?? frame.msgId;
    if (!this.sent.has(original)) return say({ event: "status_ignored", original });
    return say({ event: "status", original, status: frame.status ?? frame.delivery_status, reason: frame.reason });
  }

  takeSubscription(frame) {
    const address = strip(frame.reply_to || frame.from);
    const nonce = frame.nonce ?? frame.msg_id;
    if (this.status === "idle") return this.notice(address, nonce);
    return this.subscribers.set(nonce, { address, until: Date.now() + SUBSCRIPTION_MS });
  }

  notice(address, nonce) {
    const facts = { nonce, orig_msg_id: nonce, state: "idle", finished_at: Date.now() };
    return this.control(address, "peer_idle_notice", facts).catch(() => {});
  }

  takeIdleNotice(frame) {
    const nonce = frame.nonce ?? frame.orig_msg_id;
    if (!(this.awaited.get(nonce) > Date.now())) return say({ event: "idle_ignored", nonce });
    this.awaited.delete(nonce);
    return say({ event: "idle", nonce, from: strip(frame.from) });
  }

  takeShutdown(frame, grade) {
    const outcome = this.onShutdown === "accept" || grade === "child" ? "accepted" : "denied";
    say({ event: "shutdown", from: strip(frame.from), text: frame.text ?? frame.reason ?? "", outcome });
    const answer = { inReplyTo: frame.msg_id, outcome };
    this.control(strip(frame.reply_to || frame.from), "shutdown_response", answer).catch(() => {});
  }

  // ------------------------------------------------------------ sending

  project() {
    return projectRoot(this.options.cwd) ?? this.options.cwd;
  }

  peers({ scope = "project", fresh = false } = {}) {
    const others = this.registry.list({ fresh }).filter((record) => record.pid !== process.pid);
    const isHere = (record) => (record.projectRoot ?? record.cwd) === this.project();
    return {
      peers: others.filter((record) => scope === "all" || isHere(record)),
      others: others.filter((record) => !isHere(record)).length,
    };
  }

  resolve(to, scope) {
    const { peers } = this.peers({ scope, fresh: true });
    const text = strip(to);
    const parts = /^(.*?)\s*\[([0-9a-f]{6})\]$/.exec(text);
    const bears = (record) =>
      record.socketPath === text ||
      (parts ? ref(record) === parts[2] && ["", record.name].includes(parts[1]) : record.name === text);
    let found = peers.filter(bears);
    if (!found.length) found = peers.filter((record) => (record.formerNames ?? []).includes(text));
    if (!found.length) throw fail("unknown_peer", `no window is called ${to}`);
    if (found.length > 1) throw fail("ambiguous", `${found.length} windows are called ${to}`);
    return found[0];
  }

  async send({ to, text, scope, priority = "next", inReplyTo, notifyWhenIdle = false }) {
    const target = this.resolve(to, scope);
    if (!this.paces.has(target.socketPath)) this.paces.set(target.socketPath, new Bucket(30, 0.5));
    if (!this.paces.get(target.socketPath).take()) throw fail("paced", "merge your texts and try again");
    const frame = {
      ...this.envelope("user"),
      fromPid: process.pid,
      fromSession: this.options.session,
      fromName: this.name,
      hopChain: [this.socketPath],
      priority,
      content: wrap(this.socketPath, this.name, text),
      ...(inReplyTo && { inReplyTo }),
    };
    this.sent.add(frame.msg_id);
    await this.carry(target, [frame]);
    if (notifyWhenIdle && (target.features ?? []).includes("notify_idle")) await this.subscribe(target);
    return { msg_id: frame.msg_id };
  }

  async subscribe(target) {
    const frame = { ...this.envelope("control"), action: "notify_when_idle", reply_to: this.socketPath };
    frame.nonce = frame.msg_id;
    this.awaited.set(frame.nonce, Date.now() + SUBSCRIPTION_MS);
    await this.carry(target, [frame]);
    return { nonce: frame.nonce };
  }

  envelope(type) {
    return { msgV: 1, msg_id: crypto.randomUUID(), type, from: this.socketPath };
  }

  async control(address, action, facts) {
    const target = this.registry.list({ fresh: true }).find((record) => record.socketPath === address);
    if (!target) throw fail("unknown_peer", `nobody listens at ${address}`);
    const frame = { ...this.envelope("control"), action, ...facts };
    await this.carry(target, [frame]);
    return { msg_id: frame.msg_id };
  }

  async carry(target, frames, token = this.registry.token(target)) {
    if (target.peerProtocol > PROTOCOL) throw fail("protocol_version", `${target.name} speaks a newer protocol`);
    if (!token) throw fail("no_key", `${target.name} has no key`);
    const lines = [{ type: "auth", token }, ...frames].map((frame) => JSON.stringify(frame) + "\n");
    await exchange(target.socketPath, [{ text: lines.join("") }]);
  }

  setStatus(status) {
    if (status === this.status) return;
    [this.status, this.flippedAt] = [status, Date.now()];
    this.registry.write(this.registry.recordPath(process.pid), this.record());
    if (status !== "idle") return;
    this.accepted = 0;
    for (const [nonce, { address, until }] of this.subscribers) if (until > Date.now()) this.notice(address, nonce);
    this.subscribers.clear();
  }

  async rename(name) {
    this.formerNames = [...this.formerNames, this.name];
    this.name = name;
    this.registry.write(this.registry.recordPath(process.pid), this.record());
    const facts = { name, newName: name, oldName: this.formerNames.at(-1), formerNames: this.formerNames };
    for (const record of this.peers({ scope: "all", fresh: true }).peers) {
      await this.control(record.socketPath, "rename", facts).catch(() => {});
    }
  }
}

const ref = (record) => sha256(record.sessionId).slice(0, 6);

function projectRoot(cwd) {
  for (let at = cwd; ; at = path.dirname(at)) {
    if (fs.existsSync(path.join(at, ".git"))) return at;
    if (at === path.dirname(at)) return null;
  }
}

// Writes parts one after the other, half closes, and waits for the other end to close.
function exchange(address, parts, { stays = false, wait = CLOSE_MS } = {}) {
  return new Promise((done, failed) => {
    const begun = Date.now();
    let said = 0;
    const link = net.connect({ path: address, allowHalfOpen: true });
    const timer = setTimeout(() => over(false), wait);
    const over = (isClosed) => {
      clearTimeout(timer);
      link.destroy();
      done({ isClosed, ms: Date.now() - begun, said });
    };
    link.on("error", (error) => (["EPIPE", "ECONNRESET"].includes(error.code) ? over(true) : failed(error)));
    link.on("data", (data) => (said += data.length));
    link.on("end", () => over(true));
    link.on("connect", async () => {
      for (const { text, repeat = 1, delayMs = 0 } of parts) {
        if (delayMs) await new Promise((go) => setTimeout(go, delayMs));
        if (link.destroyed || !link.writable) return;
        link.write(Buffer.from(text.repeat(repeat), "utf8"));
      }
      if (!stays) link.end();
    });
  });
}

// ---------------------------------------------------------------- the test's words

function options() {
  const given = {};
  for (const word of process.argv.slice(2)) {
    const [name, ...value] = word.replace(/^--/, "").split("=");
    given[name] = value.join("=");
  }
  return {
    dir: process.env.PI_PEERS_DIR || path.join(os.homedir(), ".pi-peers"),
    cwd: fs.realpathSync(given.cwd || process.cwd()),
    name: given.name || `${path.basename(process.cwd())}-${process.pid}`,
    named: Boolean(given.name),
    session: given.session || crypto.randomUUID(),
    shutdown: given.shutdown,
    budget: Number(given.budget || 30_000),
  };
}

const window = new Window(options());
const shape = (record) => ({ ...record, ref: ref(record), ctx: record.contextUsage });
const words = {
  who: () => shape({ ...window.record(), childToken: window.childToken }),
  list: ({ scope, fresh = true }) => {
    const { peers, others } = window.peers({ scope, fresh });
    return { peers: peers.map(shape), others };
  },
  read: ({ pid }) => window.registry.read(pid),
  send: (asked) => window.send(asked),
  subscribe: ({ to }) => window.subscribe(window.resolve(to, "all")),
  control: ({ to, action, facts = {} }) => window.control(window.resolve(to, "all").socketPath, action, facts),
  // As somebody who holds a token, or none: what is written is the test's.
  raw: ({ to, parts, token, stays, wait }) => {
    const target = window.resolve(to, "all");
    const given = token ?? window.registry.token(target);
    const fill = (text) => text.replaceAll("$TOKEN", given).replaceAll("$FROM", window.socketPath);
    return exchange(target.socketPath, parts.map((part) => ({ ...part, text: fill(part.text) })), { stays, wait });
  },
  as_child: async ({ text, action }) => {
    // What a process does that a parent started: both are in its environment, no record is read.
    const [address, token] = [process.env.PI_PEERS_SOCKET, process.env.PI_PEERS_TOKEN];
    const frame = window.envelope(action ? "control" : "user");
    Object.assign(frame, action ? { action, reply_to: window.socketPath } : { content: text, priority: "now" });
    window.sent.add(frame.msg_id);
    const lines = [{ type: "auth", token }, frame].map((line) => JSON.stringify(line) + "\n");
    await exchange(address, [{ text: lines.join("") }]);
    return { msg_id: frame.msg_id };
  },
  remember: ({ msg_id }) => void window.sent.add(msg_id),
  status: ({ status }) => window.setStatus(status),
  context: ({ percent }) => {
    window.contextUsage = percent;
    window.registry.write(window.registry.recordPath(process.pid), window.record());
  },
  accept: ({ policy }) => void (window.accept = policy),
  on_shutdown: ({ outcome }) => void (window.onShutdown = outcome),
  consent: ({ msg_id, outcome }) => window.consent(msg_id, outcome),
  rename: ({ name }) => window.rename(name),
  protocol: ({ version }) => {
    window.protocol = version;
    window.registry.write(window.registry.recordPath(process.pid), window.record());
  },
};

await window.open();
say({ event: "ready", ...shape(window.record()) });
const lines = readline.createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const asked = JSON.parse(line);
  try {
    say({ id: asked.id, ok: (await words[asked.do](asked)) ?? null });
  } catch (error) {
    say({ id: asked.id, error: { code: error.code ?? "defect", text: error.message } });
  }
});
lines.on("close", () => {
  window.close();
  process.exit(0);
});
