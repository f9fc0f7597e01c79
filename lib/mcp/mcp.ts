import type { McpHttpHandler, Server, WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server';
import * as v from 'valibot';
import type { McpSessionRecord, Store } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import { type Cancel, type Clock, every, seconds } from '../kit/clock.ts';
import { loadAll, readAs } from '../kit/entries.ts';
import { isObject } from '../kit/json.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import type { Media } from '../media/media.ts';
import type { Gate } from '../operations/gate.ts';
import type { Operations } from '../operations/table.ts';
import { onFamilyEnd } from '../sessions/family-end.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { json } from '../web/json.ts';
import type { WebResponse } from '../web/response.ts';
import { type Caller, type CallId, readCall, readCancellation, type StartedCall, startCall } from './calls.ts';
import { deliver } from './deliver.ts';
import { createReplay } from './replay.ts';
import { createServers, type Kit } from './server.ts';

/** Limits of one paired session: MCP sessions, running calls, and responses that clients have not read yet. */
const MAX_SESSIONS = 16;
const MAX_CALLS = 64;
const MAX_RESPONSES = 2 * MAX_CALLS;
/** MCP sessions in memory, over all paired sessions. */
const MAX_OPEN = 512;
/**
 * Milliseconds without a request or an open stream after which a session is evicted from memory, unnoticed by its client.
 */
const IDLE = 15 * 60_000;
/** Seconds after which a stored session expires. */
const RETENTION = 86_400;
const SWEEP_PERIOD = 15_000;
/** Milliseconds within which several changes of the tool list become one notification. */
const CHANGED_AFTER = 100;
/** Maximum characters of the parameters with which a client began its session. */
const MAX_PARAMS = 4096;
/** Milliseconds within which most calls end. */
const SOON = 250;
const SESSION_HEADER = 'mcp-session-id';
const VERSION_HEADER = 'mcp-protocol-version';
/** Protocol versions in which a client may be answered with JSON. */
const VERSIONS: ReadonlySet<string> = new Set(['2025-11-25', '2025-06-18', '2025-03-26']);

export interface McpDeps {
  version: string;
  operations: Operations;
  sessions: Sessions;
  gate: Gate;
  media: Media | undefined;
  store: Store<'mcp-sessions'>;
  /** True if the process sleeps when it is idle, which a timer would prevent: an alarm sweeps instead (edge). */
  sleeps: boolean;
  clock: Clock;
  log: Log;
}

/** One request of a client. */
export interface McpRequest {
  request: Request;
  session: Session;
  /** The parsed body of a POST. */
  body?: unknown;
  /** The agent run that the client names (contract 09 §9). */
  runId?: string;
}

/** A session of the protocol versions that have sessions. */
interface McpSession {
  readonly id: string;
  readonly family: string;
  readonly server: Server;
  readonly transport: WebStandardStreamableHTTPServerTransport;
  usedAt: number;
  /** Number of its requests whose responses are incomplete. */
  busy: number;
  runId: string;
  readonly caller: Caller;
  /** Calls that the package has not seen yet, by request id. */
  readonly started: Map<CallId, StartedCall>;
}

/** The answer to a request, from the package or from the relay. */
type Answer = { response: Response; of?: McpSession; soon?: undefined } | { soon: WebResponse; of: McpSession };

/** The state of one paired session. */
interface Peer {
  readonly family: string;
  readonly sessions: Map<string, McpSession>;
  /** Keyed by id: sessions that begin or return from the store now. */
  readonly opening: Map<string, Promise<McpSession>>;
  /** For the versions without sessions. */
  modern?: McpHttpHandler;
  /** Run id for clients that name none. */
  readonly runId: string;
  calls: number;
  responses: number;
  /** Names of the tools that clients last knew. */
  tools: string;
}

export type Mcp = Awaited<ReturnType<typeof openMcp>>;

/** The relay as an MCP server (contract 09 §7): operations as tools, for other people's agents. */
export async function openMcp(deps: McpDeps) {
  const { version, operations, sessions, gate, media, store, sleeps, clock, log } = deps;
  const peers = new Map<string, Peer>();
  /** Keyed by id: sessions that a client may return to, in memory or not. */
  const stored = new Map<string, McpSessionRecord>();
  let loading: Promise<{ kit: Kit; createServer: ReturnType<typeof createServers> }> | undefined;
  let cancelSweep: Cancel | undefined;
  let cancelChanged: Cancel | undefined;
  let isStopped = false;

  for (const [id, record] of await loadAll({ store, log, read: readAs(Stored) })) {
    if (isFresh(record) && sessions.byFamily(record.family)) stored.set(id, record);
    else await store.removeItem(id);
  }

  function isFresh({ at }: McpSessionRecord): boolean {
    return at + RETENTION > seconds(clock);
  }

  function load() {
    loading ??= import('@modelcontextprotocol/server').then((kit) => ({
      kit,
      createServer: createServers(kit, { version, operations, media, clock }),
    }));
    return loading;
  }

  function write(id: string, record: McpSessionRecord | undefined): void {
    if (record) stored.set(id, record);
    else stored.delete(id);
    const written = record ? store.setItem(id, record) : store.removeItem(id);
    written.catch((error) => log.warn(`an MCP session could not be saved: ${describeError(error)}`));
  }

  function peerOf(family: string): Peer {
    let peer = peers.get(family);
    if (!peer) {
      const runId = `mcp-${crypto.randomUUID()}`;
      peer = { family, sessions: new Map(), opening: new Map(), runId, calls: 0, responses: 0, tools: '' };
      peer.tools = toolsOf(peer);
      peers.set(family, peer);
      if (!sleeps)
        cancelSweep ??= every(clock, SWEEP_PERIOD, sweep, (error) => log.error(`MCP: ${describeError(error)}`));
    }
    return peer;
  }

  const callerOf = (peer: Peer, runId: () => string): Caller => ({
    session() {
      const session = sessions.byFamily(peer.family);
      if (!session) throw ended();
      return session;
    },
    runId,
    begin() {
      if (peer.calls >= MAX_CALLS) throw tooMany('calls');
      peer.calls++;
      return () => void peer.calls--;
    },
  });

  /** Begins a session, or resumes one under its id. */
  async function openSession(peer: Peer, id: string): Promise<McpSession> {
    const { kit, createServer } = await load();
    const transport = new kit.WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => id,
      eventStore: createReplay(),
      onsessionclosed: () => write(id, undefined),
    });
    const started = new Map<CallId, StartedCall>();
    const caller = callerOf(peer, () => own.runId);
    const own: McpSession = {
      id,
      family: peer.family,
      transport,
      server: createServer(caller, (call) => {
        const found = started.get(call);
        started.delete(call);
        return found;
      }),
      usedAt: clock.monotonic(),
      busy: 0,
      runId: `mcp-${id}`,
      caller,
      started,
    };
    transport.onclose = () => {
      for (const call of started.values()) call.abort();
      if (peer.sessions.get(id) === own) peer.sessions.delete(id);
    };
    await own.server.connect(transport);
    evict();
    peer.sessions.set(id, own);
    return own;
  }

  /** Makes room for one more session of a peer by ending the one that was idle longest. */
  function makeRoom(peer: Peer): void {
    const own = [...stored].filter(([, { family }]) => family === peer.family);
    if (own.length < MAX_SESSIONS) return;
    const age = ([id, { at }]: [string, McpSessionRecord]) => peer.sessions.get(id)?.usedAt ?? at - RETENTION * 1e6;
    const [oldest] = own
      .filter(([id]) => !peer.sessions.get(id)?.busy && !peer.opening.has(id))
      .sort((a, b) => age(a) - age(b));
    if (!oldest) throw tooMany('MCP sessions');
    const [id] = oldest;
    write(id, undefined);
    void peer.sessions.get(id)?.transport.close();
  }

  /** The session of a request. A second one under its id would get the streams that the first one should notify and end. */
  async function sessionFor(peer: Peer, id: string): Promise<McpSession> {
    return peer.opening.get(id) ?? peer.sessions.get(id) ?? open(peer, id, resume(peer, id));
  }

  function open(peer: Peer, id: string, session: Promise<McpSession>): Promise<McpSession> {
    const opening = session.finally(() => peer.opening.delete(id));
    peer.opening.set(id, opening);
    return opening;
  }

  async function resume(peer: Peer, id: string): Promise<McpSession> {
    const record = stored.get(id);
    if (!record || record.family !== peer.family || !isFresh(record)) {
      throw new RelayError('not-found', 'there is no such MCP session: initialize again');
    }
    const own = await openSession(peer, id);
    // Replays the client's initialization, because the package offers no other way to restore a session.
    for (const message of [
      { jsonrpc: '2.0', id: 0, method: 'initialize', params: JSON.parse(record.params) },
      { jsonrpc: '2.0', method: 'notifications/initialized' },
    ]) {
      const response = await own.transport.handleRequest(replayed(id), { parsedBody: message });
      await response.body?.cancel();
    }
    write(id, { ...record, at: seconds(clock) });
    return own;
  }

  /** Ends a session that was opened while its paired session ended, which therefore could not close it. */
  function requireOpen(peer: Peer, { id, transport }: McpSession): void {
    if (peers.get(peer.family) === peer && sessions.byFamily(peer.family)) return;
    void transport.close();
    // Its client returns after the restart.
    if (isStopped) throw stopping();
    if (stored.has(id)) write(id, undefined);
    throw ended();
  }

  async function begin(peer: Peer, params: unknown): Promise<McpSession> {
    const text = JSON.stringify(params);
    if (text.length > MAX_PARAMS) throw new RelayError('too-large', 'the parameters of initialize are too long');
    makeRoom(peer);
    const id = crypto.randomUUID();
    write(id, { family: peer.family, params: text, at: seconds(clock) });
    const session = openSession(peer, id).catch((error) => {
      write(id, undefined);
      throw error;
    });
    return open(peer, id, session);
  }

  /** Keeps the number of sessions in memory below its limit. An evicted session returns from the store. */
  function evict(): void {
    const open = [...peers.values()].flatMap((peer) => [...peer.sessions.values()]);
    if (open.length < MAX_OPEN) return;
    const [oldest] = open.filter(({ busy }) => busy === 0).sort((a, b) => a.usedAt - b.usedAt);
    if (!oldest) throw tooMany('MCP sessions');
    void oldest.transport.close();
  }

  /** The package alone answers the protocol versions without sessions. */
  async function modernOf(peer: Peer): Promise<McpHttpHandler> {
    const { kit, createServer } = await load();
    peer.modern ??= kit.createMcpHandler(
      ({ authInfo }) => createServer(callerOf(peer, () => String(authInfo?.extra?.runId ?? peer.runId))),
      { legacy: 'reject', maxSubscriptions: MAX_SESSIONS, onerror: (error) => log.debug(describeError(error)) },
    );
    return peer.modern;
  }

  async function answer({ request, body, runId }: McpRequest, peer: Peer): Promise<Answer> {
    const { kit } = await load();
    const id = request.headers.get(SESSION_HEADER);
    if (id === null && !(await kit.isLegacyRequest(request, body))) {
      const modern = await modernOf(peer);
      const { url, method, headers, signal } = request;
      // The package needs a platform request, and the body has already been read.
      const plain = new Request(url, { method, headers: Object.fromEntries(headers), signal });
      const authInfo = { token: '', clientId: peer.family, scopes: [], extra: { runId } };
      return { response: await modern.fetch(plain, { parsedBody: body, authInfo }) };
    }
    if (id === null && !kit.isInitializeRequest(body)) {
      throw new RelayError('invalid', 'the header Mcp-Session-Id is missing: initialize first');
    }
    const of = id === null ? await begin(peer, (body as { params: unknown }).params) : await sessionFor(peer, id);
    requireOpen(peer, of);
    of.usedAt = clock.monotonic();
    if (runId !== undefined) of.runId = runId;
    of.busy++;
    const cancelled = readCancellation(body);
    if (cancelled !== undefined) of.started.get(cancelled)?.abort();
    try {
      const soon = await answerSoon(of, request, body);
      if (soon) return { soon, of };
      const response = await of.transport.handleRequest(request, { parsedBody: body });
      if (response.status !== 200) abandon(of, body);
      return { response, of };
    } catch (error) {
      of.busy--;
      abandon(of, body);
      throw error;
    }
  }

  /**
   * Answers a short call with plain JSON, without the streams of the package, which cost more than most calls. The package
   * takes over any longer call, with progress, cancellation and resumption.
   */
  async function answerSoon(
    of: McpSession,
    { headers, method }: Request,
    body: unknown,
  ): Promise<WebResponse | undefined> {
    const call = method === 'POST' ? readCall(body) : undefined;
    const operation = call && operations.get(call.name);
    if (!call || !operation || of.started.has(call.id) || !isPlain(headers)) return undefined;
    const { caller, server, started } = of;
    const begun = startCall(deps, operation, { args: call.args, caller, client: server.getClientVersion()?.name });
    started.set(call.id, begun);
    const result = await withTimeout({ clock, timeout: SOON }, begun.result, () => undefined);
    // Its session has ended meanwhile, and its answers are dropped.
    if (!result || peers.get(of.family)?.sessions.get(of.id) !== of) return undefined;
    started.delete(call.id);
    return json({ jsonrpc: '2.0', id: call.id, result }, 200, { [SESSION_HEADER]: of.id });
  }

  /** The package did not take over a call. */
  function abandon({ started }: McpSession, body: unknown): void {
    const { id } = readCall(body) ?? {};
    if (id === undefined) return;
    started.get(id)?.abort();
    started.delete(id);
  }

  /** Closes a peer: aborts its calls and ends its streams. */
  function close(peer: Peer): void {
    peers.delete(peer.family);
    for (const { transport } of [...peer.sessions.values()]) void transport.close();
    void peer.modern?.close();
    if (peers.size > 0) return;
    cancelSweep?.();
    cancelSweep = undefined;
  }

  onFamilyEnd(sessions, (family) => {
    const peer = peers.get(family);
    if (peer) close(peer);
    for (const [id, record] of stored) if (record.family === family) write(id, undefined);
  });
  sessions.onChange(changed);
  gate.onChange(changed);

  function toolsOf({ family }: Peer): string {
    const session = sessions.byFamily(family);
    return session
      ? operations
          .list(session)
          .map(({ name }) => name)
          .join()
      : '';
  }

  /** Notifies clients whose tool list has changed. */
  function announce(): void {
    for (const peer of peers.values()) {
      const tools = toolsOf(peer);
      if (tools === peer.tools) continue;
      peer.tools = tools;
      for (const { server } of peer.sessions.values()) server.sendToolListChanged().catch(() => {});
      peer.modern?.notify.toolsChanged();
    }
  }

  function changed(): void {
    if (peers.size === 0) return;
    cancelChanged ??= clock.after(CHANGED_AFTER, () => {
      cancelChanged = undefined;
      announce();
    });
  }

  function sweep(): void {
    const now = clock.monotonic();
    for (const peer of peers.values()) {
      for (const { busy, usedAt, transport } of [...peer.sessions.values()]) {
        if (busy === 0 && usedAt + IDLE <= now) void transport.close();
      }
      if (peer.sessions.size === 0 && peer.calls === 0 && peer.responses === 0) close(peer);
    }
    for (const [id, record] of stored) {
      if (isFresh(record) || peers.get(record.family)?.sessions.has(id)) continue;
      write(id, undefined);
    }
    // An expired grant may have changed the list.
    announce();
  }

  return {
    /**
     * One request of Streamable HTTP.
     * @throws RelayError `not-found` for an unknown MCP session, `invalid`, `too-large`, `rate-limited`.
     */
    async handle(asked: McpRequest): Promise<WebResponse> {
      if (isStopped) throw stopping();
      const { request, session, body } = asked;
      const peer = peerOf(session.family);
      if (peer.responses >= MAX_RESPONSES && isRequest(body)) throw tooMany('responses');
      if (peer.calls >= MAX_CALLS && isCall(body)) throw tooMany('calls');
      peer.responses++;
      let of: McpSession | undefined;
      let isDone = false;
      const done = (): void => {
        if (isDone) return;
        isDone = true;
        peer.responses--;
        if (!of) return;
        of.busy--;
        of.usedAt = clock.monotonic();
      };
      try {
        const answered = await answer(asked, peer);
        of = answered.of;
        if (answered.soon) {
          answered.soon.sent = done;
          return answered.soon;
        }
        return await deliver(answered.response, { clock, isListening: request.method === 'GET', done });
      } catch (error) {
        done();
        throw error;
      }
    },

    /** Devices have come, gone, or changed what they offer. */
    devicesChanged: changed,

    /** Number of MCP sessions in memory. */
    count: (): number => [...peers.values()].reduce((sum, peer) => sum + peer.sessions.size, 0),

    sweep,

    stop(): void {
      isStopped = true;
      cancelChanged?.();
      for (const peer of [...peers.values()]) close(peer);
    },
  };
}

const stopping = (): RelayError => new RelayError('unavailable', 'the relay is stopping');
const ended = (): RelayError => new RelayError('unauthorized', 'the session has ended');

const tooMany = (what: string): RelayError =>
  new RelayError('rate-limited', `too many ${what} of this session are open: try again in a moment`, { retryAfter: 1 });

/** True if the package would accept the request. It also answers requests that are malformed. */
function isPlain(headers: Headers): boolean {
  const accept = headers.get('accept') ?? '';
  const version = headers.get(VERSION_HEADER);
  const acceptsBoth = accept.includes('application/json') && accept.includes('text/event-stream');
  return acceptsBoth && (version === null || VERSIONS.has(version));
}

const isCall = (body: unknown): boolean =>
  Array.isArray(body) ? body.some(isCall) : isObject(body) && body.method === 'tools/call';

/** True if a message expects a response; a cancellation, which does not, is always accepted. */
const isRequest = (body: unknown): boolean =>
  Array.isArray(body) ? body.some(isRequest) : body === undefined || (isObject(body) && body.id !== undefined);

/** A request that resumes a stored session. */
const replayed = (id: string): Request =>
  new Request('http://relay/mcp', {
    method: 'POST',
    headers: {
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
      [SESSION_HEADER]: id,
    },
  });

const Stored: v.GenericSchema<unknown, McpSessionRecord> = v.object({
  ...v.entriesFromList(['family', 'params'], v.string()),
  at: v.number(),
});
