import dns from 'node:dns';
import { type EdgeRuntime, relayHost, startEdgeRuntime } from './edge-runtime.ts';
import { atFileEnd } from './file-end.ts';
import type { Target, TargetOptions } from './relay.ts';

/** The runtime of this test file, shared because starting one takes longer than most cases. */
let shared: Promise<EdgeRuntime> | undefined;
let relays = 0;

function startShared(): Promise<EdgeRuntime> {
  const starting = startEdgeRuntime();
  relays = 0;
  atFileEnd(async () => {
    shared = undefined;
    await (await starting).stop();
  });
  return starting;
}

// Names below `localhost` are this machine (RFC 6761 §6.3), but not every resolver knows that.
const { lookup } = dns;
dns.lookup = Object.assign(
  (name: string, ...rest: [never, never]) => lookup(name.endsWith('.localhost') ? '127.0.0.1' : name, ...rest),
  lookup,
);

/**
 * A fresh relay in the local edge runtime, with its own host name. Its `restart` restarts the runtime, and with it
 * every other relay of the file.
 */
export async function startEdgeTarget({ env = {} }: TargetOptions = {}): Promise<Target> {
  shared ??= startShared();
  const runtime = await shared;
  const name = relayHost(relays++);
  await runtime.configure(name, env);
  const operatorToken = await runtime.operatorToken(name);
  const call = (path: string, init: RequestInit = {}, more: Record<string, string> = {}) => {
    const headers = new Headers(init.headers);
    // The runtime drops a connection whose large body was not read: the next request on it would fail.
    headers.set('connection', 'close');
    for (const [name, value] of Object.entries(more)) headers.set(name, value);
    return fetch(target.url + path, { ...init, headers });
  };
  const target: Target = {
    runtime: 'edge',
    get url() {
      return runtime.origin(name);
    },
    get wsUrl() {
      return `${runtime.origin(name).replace('http', 'ws')}/ws`;
    },
    agentHome: '',
    operatorToken,
    operatorTokenFor: (lifetime) => runtime.operatorToken(name, lifetime),
    log: runtime.log,
    fetch: (path, init) => call(path, init),
    operator: (path, init) => call(path, init, { authorization: `Bearer ${operatorToken}` }),
    asleep: () => runtime.asleep(name),
    objects: () => runtime.objects(name),
    stored: (store, key) => runtime.stored(name, store, key),
    breakStorage: (isBroken) => runtime.breakStorage(name, isBroken),
    restart: runtime.restart,
    // The object stays until the runtime stops; the next case uses another.
    stop: async () => {},
  };
  return target;
}
