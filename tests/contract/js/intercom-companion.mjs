// The client that is shipped, commanded by a test.
//
// Rule 1: it adds nothing: each word is one call. An error whose outcome is unknown bears a `?` behind its code.
//
// Usage: intercom-companion.mjs --shim=PATH

import { pathToFileURL } from "node:url";
import { fail, options, say, serve } from "./intercom-wire.mjs";

const given = options();
const offered = await import(pathToFileURL(given.shim).href);
let client = null;

const told = async (call) => {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof offered.IntercomError)) throw error;
    throw fail(error.outcomeKnown ? error.code : `${error.code}?`, error.message);
  }
};

const words = {
  offers: () => Object.keys(offered).sort(),
  connect: ({ options: asked, watch = true }) =>
    told(async () => {
      const onError = (error) => say({ event: "lost", reason: error.code, text: error.message });
      client = await offered.connectIntercom(watch ? { ...asked, onError } : asked);
      return { sessionId: client.sessionId, methods: Object.keys(client).sort() };
    }),
  who: () => ({ sessionId: client.sessionId, isConnected: client.isConnected() }),
  list: () => told(() => client.listSessions()),
  send: ({ to, message }) => told(() => client.send(to, message)),
  receipt: ({ to, wanted }) => told(() => client.receipt(to, wanted)),
  last: ({ to, wanted }) => told(() => client.last(to, wanted)),
  disconnect: () => told(() => client.disconnect()),
  timers: () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length,
};

say({ event: "ready" });
serve(words, () => client?.disconnect());
