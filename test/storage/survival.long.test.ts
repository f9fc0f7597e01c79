import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { WebSocketServer } from 'ws';
import { createIdentities } from '../../lib/host/node/identity.ts';
import { signPayload } from '../../lib/pairing/signature.ts';
import { newToken } from '../../lib/reach/ids.ts';
import { encodeMessage, type HostMessage } from '../../lib/reach/messages.ts';
import type { Reach } from '../../lib/reach/reach.ts';
import type { Session } from '../../lib/sessions/session.ts';
import { LOCATIONS } from '../../storage/index.ts';
import { follow, keep, nextTurn } from '../support/chat-turns.ts';
import { type Client, connect } from '../support/client.ts';
import { call, health, startDesktop } from '../support/desktop.ts';
import { startEdgeTarget } from '../support/edge.ts';
import { type FakeApi, startFakeApi } from '../support/fake-api-server.ts';
import { TIMEOUT } from '../support/limits.ts';
import { initialize, message } from '../support/mcp.ts';
import { mediaDevice, PNG } from '../support/media.ts';
import { startPhone } from '../support/phone.ts';
import { freePort } from '../support/process.ts';
import { type PushService, startPushService } from '../support/push-service.ts';
import {
  attemptFrom,
  authenticate,
  BEHIND_PROXY,
  bearer,
  pair,
  post,
  registerCode,
  startNodeTarget,
  type Target,
} from '../support/relay.ts';

type Outcome = 'kept' | 'forgotten';

interface State {
  /** Its row in the table of `storage/README.md`, which also says what is to come of it. */
  name: string;
  /** It is work under way: the object stays awake for it. `test/edge/eviction.test.ts` evicts it all the same. */
  keepsAwake?: true;
  /** A server on loopback that its relay calls, started with it; returns the variables that name it. */
  api?: { start(): Promise<Record<string, string>> };
  /** Only a host has it: the cell of the edge is `none`. */
  hostOnly?: true;
  /** It ends by itself within a minute: put last and looked for first, so that a busy machine has the time. */
  isBrief?: true;
  /** Puts the state into a new relay. Returns a check that it is still there, unchanged. */
  put(target: Target): Promise<() => Promise<boolean>>;
}

const statusOf = async (target: Target, token: string) =>
  (await target.fetch('/sessions', { headers: bearer(token) })).status;

const admits = async (target: Target, credentials: Record<string, unknown>) => {
  const { frame, client } = await authenticate(target, credentials);
  client.terminate();
  return frame.type === 'auth.ok';
};

const isBlocked = async (target: Target): Promise<boolean> => {
  const refusal = await connect(target.wsUrl).then(
    (client) => client.socket.terminate(),
    (error) => error.status,
  );
  return refusal === 429;
};

const answers = (client: Client): Promise<boolean> => {
  client.send('system', 'ping', { ts: 1 }, 'awake');
  return Promise.race([client.next({ id: 'awake' }).then(() => true), client.closed().then(() => false)]);
};

const API_KEY = 'sk-the-key';

/** An API server of the agent on loopback, which accepts one key. */
class ApiServer {
  probes = 0;
  readonly #server = createServer(({ headers }, response) => {
    const isKey = headers.authorization === `Bearer ${API_KEY}`;
    if (isKey) this.probes++;
    response.writeHead(isKey ? 200 : 401).end();
  });

  async start(): Promise<Record<string, string>> {
    if (!this.#server.listening) await once(this.#server.listen(0, '127.0.0.1'), 'listening');
    const { port } = this.#server.address() as AddressInfo;
    return { RELAY_WEBAPI_URL: `http://127.0.0.1:${port}`, RELAY_ALLOW_INSECURE_API_BEARER: '1' };
  }

  stop = () => this.#server.close();
}

/** A broker of Reach on loopback, for one host: confirms what that asks for, unless told otherwise. */
class ReachBroker {
  readonly requests: HostMessage[] = [];
  confirmsRevocations = true;
  maxUses = 8;
  #server: HttpsServer | undefined;
  #directory = '';

  async start(): Promise<Record<string, string>> {
    const pem = await createIdentities().generate('127.0.0.1', Date.now());
    this.#directory = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
    const ca = join(this.#directory, 'ca.pem');
    await writeFile(ca, pem.cert);
    this.#server = createHttpsServer(pem);
    const sockets = new WebSocketServer({ server: this.#server, path: '/v1/connect' });
    sockets.on('connection', (socket) => {
      socket.on('error', () => {});
      socket.on('message', (text) => this.#receive(JSON.parse(String(text)), (answer) => socket.send(answer)));
    });
    await once(this.#server.listen(0, '127.0.0.1'), 'listening');
    const { port } = this.#server.address() as AddressInfo;
    return {
      RELAY_SECURE_LINK_ENABLED: '1',
      RELAY_SECURE_LINK_HOST: '127.0.0.1',
      RELAY_SECURE_LINK_PORT: String(await freePort()),
      RELAY_EXPERIMENTAL_REACH_ENABLED: '1',
      RELAY_SECURE_LINK_BROKER_URL: `wss://127.0.0.1:${port}`,
      RELAY_SECURE_LINK_BROKER_HOST_TOKEN: newToken(),
      NODE_EXTRA_CA_CERTS: ca,
    };
  }

  #receive(message: HostMessage | { type: 'register' }, send: (text: string) => void): void {
    if (message.type === 'register') send(encodeMessage({ type: 'registered' }));
    else {
      this.requests.push(message);
      if (message.type === 'publish_route') {
        const { credential_id } = message;
        send(encodeMessage({ type: 'published', credential_kind: 'route', credential_id }));
      } else if (message.type === 'publish_bootstrap') {
        const { pairing_id, max_uses } = message;
        if (max_uses > this.maxUses) send(encodeMessage({ type: 'error', code: 'unauthorized' }));
        else send(encodeMessage({ type: 'published', credential_kind: 'bootstrap', pairing_id }));
      } else if (message.type === 'revoke' && this.confirmsRevocations) {
        send(encodeMessage({ type: 'revoked', credential_kind: 'route', credential_id: message.credential_id }));
      }
    }
  }

  count = (type: HostMessage['type']) => this.requests.filter((request) => request.type === type).length;
  stop = async () => {
    this.#server?.closeAllConnections();
    this.#server?.close();
    if (this.#directory) await rm(this.#directory, { recursive: true, force: true });
  };
}

/** The connector of a relay to its broker, once it is connected. */
async function reachOf(target: Target): Promise<Reach> {
  const reach = target.relay?.reach as Reach;
  await vi.waitFor(() => expect(reach.health(true)).toMatchObject({ state: 'connected' }), TIMEOUT);
  return reach;
}

/** The route of a relay's only session. */
const routeOf = async (target: Target) =>
  (await reachOf(target)).routeCredential(target.relay?.sessions.list()[0] as Session);

const reachBrokers = [new ReachBroker(), new ReachBroker(), new ReachBroker()] as const;
const [keeping, forgetful, simple] = reachBrokers;
const [remembering, counting] = [new ApiServer(), new ApiServer()];
let pushService: PushService;
let agent: FakeApi;
const servers: (() => unknown)[] = [remembering, counting, ...reachBrokers].map(({ stop }) => stop);
beforeAll(async () => {
  pushService = await startPushService((stop) => servers.push(stop));
  agent = await startFakeApi((stop) => servers.push(stop));
  agent.onStream(async (exchange) => {
    exchange.open();
    await exchange.event({ type: 'assistant.delta', delta: 'answer' });
    if (!exchange.path.includes('endless')) exchange.end();
  });
});
afterAll(() => Promise.all(servers.map((stop) => stop())));

/** Status of a call of voice that lacks its body: 400, unless its bearer is refused. */
const useVoice = async (target: Target, key: string) =>
  (await target.fetch('/voice/synthesize', { method: 'POST', headers: bearer(key) })).status;

/** THE table of cases: one entry per row of the table in `storage/README.md`. */
const STATES: State[] = [
  {
    name: 'session',
    async put(target) {
      const { token, client } = await pair(target);
      client.terminate();
      return async () => (await statusOf(target, token)) === 200;
    },
  },
  {
    name: 'end of a session',
    async put(target) {
      const [gone, other] = [await pair(target), await pair(target)];
      for (const { client } of [gone, other]) client.terminate();
      await target.fetch(`/sessions/${gone.prefix}`, { method: 'DELETE', headers: bearer(other.token) });
      return async () => (await statusOf(target, gone.token)) === 401 && (await statusOf(target, other.token)) === 200;
    },
  },
  {
    name: 'list of ended sessions',
    async put(target) {
      const { client, prefix, token } = await pair(target);
      client.terminate();
      await target.fetch(`/sessions/${prefix}`, { method: 'DELETE', headers: bearer(token) });
      return async () => {
        const { sessions } = await (await target.operator('/sessions/ended')).json();
        return sessions.some((row: { token_prefix: string }) => row.token_prefix === prefix);
      };
    },
  },
  {
    name: 'grants, reduced',
    async put(target) {
      const { token, prefix, client } = await pair(target);
      client.terminate();
      const body = '{"grants":{"terminal":100}}';
      const reduced = await target.fetch(`/sessions/${prefix}`, { method: 'PATCH', body, headers: bearer(token) });
      const { grants } = await reduced.json();
      return async () => {
        const { sessions } = await (await target.fetch('/sessions', { headers: bearer(token) })).json();
        return JSON.stringify(sessions[0]?.grants) === JSON.stringify(grants);
      };
    },
  },
  {
    name: 'refresh credential',
    async put(target) {
      const { refreshToken, client } = await pair(target, { device: { device_id: 'me' } });
      client.terminate();
      return () => admits(target, { refresh_token: refreshToken, device_id: 'me' });
    },
  },
  {
    name: 'death of a refresh token',
    async put(target) {
      const { refreshToken, client } = await pair(target, { device: { device_id: 'me' } });
      client.terminate();
      const use = (token: unknown) => authenticate(target, { refresh_token: token, device_id: 'me' });
      const second = await use(refreshToken);
      const third = await use(second.frame.payload.refresh_token);
      for (const { client } of [second, third]) client.terminate();
      return async () => {
        if (await admits(target, { refresh_token: refreshToken, device_id: 'me' })) return false;
        // Only a token that is known to be dead ends the session (contract 01 §6.5).
        return (await statusOf(target, third.frame.payload.session_token as string)) === 401;
      };
    },
  },
  {
    name: 'open socket',
    async put(target) {
      const { client } = await pair(target);
      return () => answers(client);
    },
  },
  {
    name: 'socket before authentication',
    keepsAwake: true,
    isBrief: true,
    async put(target) {
      await registerCode(target, 'SLOWLY');
      const client = await connect(target.wsUrl);
      return async () => {
        client.send('system', 'auth', { pairing_code: 'SLOWLY' });
        return Promise.race([client.next({ type: 'auth.ok' }).then(() => true), client.closed().then(() => false)]);
      };
    },
  },
  {
    name: 'QR secret',
    async put(target) {
      const mint = async () => JSON.parse((await (await target.operator('/pairing/mint', post({}))).json()).qr_payload);
      const isSigned = async () => {
        const [payload, secret] = [await mint(), await secretOf(target)];
        return payload.sig === signPayload(payload, secret);
      };
      if (!(await isSigned())) throw new Error('a payload is not signed with the secret that is stored');
      const before = await secretOf(target);
      return async () => (await isSigned()) && before.equals(await secretOf(target));
    },
  },
  {
    name: 'pairing code',
    async put(target) {
      const policy = { ttl_seconds: 5000, grants: { terminal: 60 } };
      await registerCode(target, 'SCANME', policy);
      return async () => {
        const { frame, client } = await authenticate(target, { pairing_code: 'SCANME' });
        client.terminate();
        if (frame.type !== 'auth.ok') return false;
        const { expires_at: end, grants } = frame.payload as { expires_at: number; grants: Record<string, number> };
        const left = end - Date.now() / 1000;
        return left > 4900 && left <= 5000 && (grants.terminal ?? 0) < end - 4900;
      };
    },
  },
  {
    name: 'use of a pairing code',
    async put(target) {
      await registerCode(target, 'USEDUP');
      if (!(await admits(target, { pairing_code: 'USEDUP' }))) throw new Error('a fresh code was refused');
      return async () => !(await admits(target, { pairing_code: 'USEDUP' }));
    },
  },
  {
    name: 'request to pair',
    async put(target) {
      await target.fetch('/pairing', { method: 'POST', headers: { via: '1.1 proxy' } });
      const waiting = async () => (await (await target.operator('/pairing/pending')).json()).requests;
      const before = await waiting();
      return async () => before.length === 1 && JSON.stringify(await waiting()) === JSON.stringify(before);
    },
  },
  {
    name: 'restriction after wrong codes',
    async put(target) {
      for (let index = 0; index < 61; index++) {
        await attemptFrom(target, `192.0.2.${index}`, { pairing_code: String(index).padStart(6, '0') });
      }
      return async () => {
        const { code } = await (await target.operator('/pairing', { method: 'POST' })).json();
        return (await attemptFrom(target, '192.0.2.99', { pairing_code: code })) !== 'auth.ok';
      };
    },
  },
  {
    name: 'block of a peer',
    async put(target) {
      for (let count = 0; count < 5; count++) await admits(target, { session_token: 'wrong' });
      return () => isBlocked(target);
    },
  },
  {
    name: 'failures and code requests of a peer',
    isBrief: true,
    async put(target) {
      for (let count = 0; count < 5; count++) await target.fetch('/pairing', { method: 'POST' });
      for (let count = 0; count < 4; count++) await admits(target, { session_token: 'wrong' });
      return async () => {
        const sixth = await target.fetch('/pairing', { method: 'POST' });
        await admits(target, { session_token: 'wrong' });
        return sixth.status === 429 && (await isBlocked(target));
      };
    },
  },
  {
    name: 'runtime switch',
    async put(target) {
      const init = { ...post({ allow_insecure_api_bearer: true }), method: 'PATCH' };
      await target.operator('/relay/security', init);
      return async () => (await (await target.operator('/relay/security')).json()).allow_insecure_api_bearer;
    },
  },
  {
    name: 'session of MCP',
    async put(target) {
      const { token, client } = await pair(target);
      client.terminate();
      const begun = await target.fetch('/mcp', message(token, initialize()));
      await begun.text();
      const headers = {
        'mcp-session-id': begun.headers.get('mcp-session-id') ?? '',
        'mcp-protocol-version': '2025-11-25',
      };
      return async () => {
        const ping = message(token, { jsonrpc: '2.0', id: 2, method: 'ping' }, headers);
        const answer = await target.fetch('/mcp', ping);
        await answer.text();
        return answer.status === 200;
      };
    },
  },
  {
    name: 'chat turn that has ended',
    api: { start: async () => ({ RELAY_WEBAPI_URL: agent.url }) },
    async put(target) {
      const { client, token } = await pair(target);
      await follow(client);
      keep(client, 'c1');
      for (let state: unknown = 'running'; state === 'running'; ) ({ state } = await nextTurn(client));
      client.terminate();
      return async () => {
        const { client } = await authenticate(target, { session_token: token });
        return (await follow(client)).some(({ state, preview }) => state === 'done' && preview === 'answer');
      };
    },
  },
  {
    name: 'chat turn that runs',
    keepsAwake: true,
    api: { start: async () => ({ RELAY_WEBAPI_URL: agent.url }) },
    async put(target) {
      const { client, token } = await pair(target);
      keep(client, 'c1', { session_id: 'endless' });
      await client.next({ channel: 'chat', id: 'c1' });
      client.terminate();
      return async () => {
        const { client } = await authenticate(target, { session_token: token });
        return (await follow(client)).some(({ state }) => state === 'running');
      };
    },
  },
  {
    name: 'socket that follows chat turns',
    api: { start: async () => ({ RELAY_WEBAPI_URL: agent.url }) },
    async put(target) {
      const { client, token } = await pair(target);
      await follow(client);
      return async () => {
        const { client: other } = await authenticate(target, { session_token: token });
        keep(other, 'c1');
        await other.next({ channel: 'chat', id: 'c1' });
        return client.frames.some(({ type }) => type === 'chat.turn');
      };
    },
  },
  {
    name: 'freeze',
    async put(target) {
      await target.operator('/relay/freeze', post({ reason: 'lost' }));
      return async () => (await (await target.fetch('/health')).json()).frozen === true;
    },
  },
  {
    name: 'API bearer found valid',
    api: remembering,
    isBrief: true,
    async put(target) {
      await useVoice(target, API_KEY);
      const before = remembering.probes;
      return async () => (await useVoice(target, API_KEY)) === 400 && remembering.probes === before;
    },
  },
  {
    name: 'failed API bearers of a caller',
    api: counting,
    isBrief: true,
    async put(target) {
      await Promise.all(Array.from({ length: 30 }, (_, at) => useVoice(target, `wrong-${at}`)));
      return async () => (await useVoice(target, 'wrong')) === 429;
    },
  },
  {
    name: 'undelivered phone message',
    async put(target) {
      await target.operator('/phone/message', post({ text: 'later', message_id: 'm1' }));
      return async () => {
        const { client } = await pair(target);
        client.send('proactive', 'proactive.subscribe');
        const frames = [await client.next({ channel: 'proactive' }), await client.next({ channel: 'proactive' })];
        return frames.some(({ type, payload }) => type === 'phone.message' && payload.text === 'later');
      };
    },
  },
  {
    name: 'key of web push',
    async put(target) {
      const { token, client } = await pair(target);
      client.terminate();
      const key = async () => (await (await target.fetch('/push/key', { headers: bearer(token) })).json()).key;
      const before = await key();
      return async () => (await key()) === before;
    },
  },
  {
    name: 'subscription to web push',
    async put(target) {
      const { token, client } = await pair(target);
      client.terminate();
      const { keys } = pushService.subscription();
      const subscription = { endpoint: 'https://fcm.googleapis.com/fcm/send/1', keys };
      const call = async (method: string) => {
        const init = { method, body: JSON.stringify(subscription), headers: bearer(token) };
        return (await target.fetch('/push/subscribe', init)).json();
      };
      await call('POST');
      return async () => (await call('DELETE')).removed;
    },
  },
  {
    name: 'last answer of each push service',
    api: { start: async () => ({ RELAY_PUSH_HOSTS: pushService.host }) },
    async put(target) {
      const { token, client } = await pair(target);
      client.terminate();
      const subscription = pushService.subscription();
      await target.fetch('/push/subscribe', { ...post(subscription), headers: bearer(token) });
      await target.operator('/phone/message', post({ text: 'look' }));
      const last = async () => (await (await target.operator('/push/status')).json()).services[0]?.status;
      await vi.waitFor(async () => expect(await last()).toBe(201), TIMEOUT);
      return async () => (await last()) === 201;
    },
  },
  {
    name: 'message that nobody has shown yet, with web push',
    // Ten seconds, at the end of which it sends the knock.
    keepsAwake: true,
    api: { start: async () => ({ RELAY_PUSH_HOSTS: pushService.host }) },
    async put(target) {
      const { client, token } = await pair(target);
      const subscription = pushService.subscription();
      await target.fetch('/push/subscribe', { ...post(subscription), headers: bearer(token) });
      client.send('proactive', 'proactive.subscribe');
      await client.next({ type: 'proactive.subscribed' });
      await target.operator('/phone/message', post({ text: 'look', message_id: 'm1' }));
      return async () => (await pushService.noticesOf(subscription, 1))[0]?.payload.message_id === 'm1';
    },
  },
  {
    name: 'unread phone reply',
    async put(target) {
      const { client } = await pair(target);
      client.send('proactive', 'proactive.reply', { text: 'mine' }, 'r1');
      await client.next({ id: 'r1' });
      client.terminate();
      return async () => {
        const { replies } = await (await target.operator('/phone/replies?timeout=0')).json();
        return replies.some(({ text }: { text: string }) => text === 'mine');
      };
    },
  },
  {
    name: 'history of messages and replies',
    async put(target) {
      await target.operator('/phone/message', post({ text: 'kept', message_id: 'h1' }));
      return async () => {
        const headers = { 'x-svc-operator': '1' };
        const { items } = await (await target.operator('/phone/history', { headers })).json();
        return items.some(({ text }: { text: string }) => text === 'kept');
      };
    },
  },
  {
    name: 'ids of delivered messages',
    async put(target) {
      const { client } = await pair(target);
      client.send('proactive', 'proactive.subscribe');
      const send = async () =>
        (await target.operator('/phone/message', post({ text: 'once', message_id: 'd1' }))).json();
      await send();
      await client.next({ id: 'd1' });
      client.send('proactive', 'proactive.shown', { message_id: 'd1' });
      client.send('system', 'ping', {}, 'shown');
      await client.next({ id: 'shown' });
      return async () => (await send()).duplicate === true;
    },
  },
  {
    name: 'copies of phone messages',
    async put(target) {
      const { client } = await pair(target);
      client.send('proactive', 'proactive.subscribe', { mirror: true });
      await client.next({ type: 'proactive.subscribed' });
      return async () => {
        const headers = { 'x-svc-operator': '1' };
        const { devices } = await (await target.operator('/relay/devices', { headers })).json();
        return devices.some(({ connections }: { connections: { channels: { proactive: { mirror: boolean } } }[] }) =>
          connections.some(({ channels }) => channels.proactive.mirror),
        );
      };
    },
  },
  {
    name: 'subscription to phone messages',
    async put(target) {
      const { client } = await pair(target);
      client.send('proactive', 'proactive.subscribe');
      await client.next({ type: 'proactive.subscribed' });
      return async () => (await (await target.operator('/phone/message', post({ text: 'now' }))).json()).delivered;
    },
  },
  {
    name: 'socket that waits for replies',
    async put(target) {
      const { token } = await pair(target);
      const url = target.wsUrl.replace(/ws$/, 'phone/replies');
      const reader = await connect(url, { headers: bearer(token) });
      return async () => {
        const phone = await authenticate(target, { session_token: token });
        phone.client.send('proactive', 'proactive.reply', { text: 'at last' }, 'r1');
        await phone.client.next({ id: 'r1' });
        return (
          reader.socket.readyState === reader.socket.OPEN && (await reader.next({ type: 'reply' })).text === 'at last'
        );
      };
    },
  },
  {
    name: 'waiting poll for replies',
    keepsAwake: true,
    isBrief: true,
    async put(target) {
      const { token, client } = await pair(target);
      client.terminate();
      const poll = target.operator('/phone/replies?timeout=60').then((response) => response.json());
      const replies = poll.then(({ replies }) => replies).catch(() => []);
      return async () => {
        const phone = await authenticate(target, { session_token: token });
        phone.client.send('proactive', 'proactive.reply', { text: 'at last' });
        return (await replies).some(({ text }: { text: string }) => text === 'at last');
      };
    },
  },
  {
    name: 'chat seen in a message',
    async put(target) {
      await target.operator('/phone/message', post({ text: 'x', chat_id: 'c/1:ü', title: 'Trip' }));
      return async () => {
        const { client, token } = await pair(target);
        client.terminate();
        const { threads } = await (await target.fetch('/phone/threads', { headers: bearer(token) })).json();
        return JSON.stringify(threads) === JSON.stringify([{ session_id: '', chat_id: 'c/1:ü', title: 'Trip' }]);
      };
    },
  },
  {
    name: 'notification',
    async put(target) {
      const { client } = await pair(target);
      client.send('notifications', 'notification.posted', { package_name: 'app', title: 'Hi', extra: { a: [1] } });
      client.send('system', 'ping', {}, 'posted');
      await client.next({ id: 'posted' });
      client.terminate();
      return async () => {
        const { notifications } = await (await target.operator('/notifications/recent')).json();
        return JSON.stringify(notifications) === '[{"package_name":"app","title":"Hi","extra":{"a":[1]}}]';
      };
    },
  },
  {
    name: 'media entry',
    async put(target) {
      const device = await mediaDevice(target);
      device.client.terminate();
      const token = await device.put(PNG);
      await target.operator(`/media/${token}/sensitive`, { method: 'POST' });
      return async () => {
        const response = await device.get(`/media/${token}`);
        const bytes = Buffer.from(await response.arrayBuffer());
        return response.headers.get('x-media-sensitive') === '1' && bytes.equals(PNG);
      };
    },
  },
  {
    name: 'connected phone and the selection',
    async put(target) {
      await startPhone(target, { device: { device_id: 'a' } });
      await startPhone(target, { device: { device_id: 'b' }, status: { battery: 7 } });
      await startPhone(target, { device: { device_id: 'c' } });
      await target.operator('/bridge/select-active', post({ device: 'b' }));
      return async () => {
        const { devices, ...rest } = await (await target.operator('/bridge/devices')).json();
        const active = devices.find(({ active }: { active: boolean }) => active);
        return active?.battery === 7 && rest.active_device_id === 'b' && rest.most_recent_device_id === 'c';
      };
    },
  },
  {
    name: 'disconnected phone',
    async put(target) {
      const { client } = await startPhone(target, { device: { device_id: 'gone' }, status: { battery: 7 } });
      client.terminate();
      const status = async () => (await target.operator('/bridge/status')).json();
      await vi.waitFor(async () => expect((await status()).connected).toBe(false), TIMEOUT);
      return async () => {
        const { battery, device_id: id, connected } = await status();
        return battery === 7 && id === 'gone' && connected === false;
      };
    },
  },
  {
    name: 'bridge activity',
    async put(target) {
      const phone = await startPhone(target);
      await target.fetch('/ping', { headers: phone.headers });
      const [row] = await activityOf(target);
      return async () => JSON.stringify(await activityOf(target)) === JSON.stringify([row]);
    },
  },
  {
    name: 'bridge command under way',
    keepsAwake: true,
    isBrief: true,
    async put(target) {
      const phone = await startPhone(target, { script: () => undefined });
      unheard(target.fetch('/ping', { headers: phone.headers }));
      const command = await phone.received();
      return async () => {
        phone.answer(command, { status: 200, result: {} });
        await answers(phone.client);
        const [row] = await activityOf(target);
        return row?.decision === 'executed';
      };
    },
  },
  {
    name: 'connected desktop',
    async put(target) {
      const desktop = await startDesktop(target);
      const before = await health(target, desktop);
      return async () => {
        const { clients, host } = await health(target, desktop);
        return host === before.host && JSON.stringify(clients) === JSON.stringify(before.clients);
      };
    },
  },
  {
    name: 'control session of a desktop',
    async put(target) {
      const desktop = await startDesktop(target);
      const caller = await pair(target);
      caller.client.terminate();
      const act = async () => {
        const headers = { 'x-svc-relay-run-id': 'run' };
        const answer = await call(
          target,
          { headers: bearer(caller.token) },
          'desktop_computer_action',
          {},
          { headers },
        );
        return answer.status === 200 && desktop.commands.at(-1)?.control_session?.id;
      };
      const before = await act();
      return async () => (await act()) === before;
    },
  },
  {
    name: 'desktop activity',
    async put(target) {
      const desktop = await startDesktop(target);
      await call(target, desktop, 'desktop_terminal', { command: 'ls' });
      const rows = async () => JSON.stringify((await health(target, desktop)).recent_commands);
      const before = await rows();
      return async () => (await rows()) === before;
    },
  },
  {
    name: 'desktop command under way',
    keepsAwake: true,
    async put(target) {
      const desktop = await startDesktop(target, { script: () => undefined });
      unheard(call(target, desktop, 'desktop_terminal'));
      const command = await desktop.received();
      return async () => {
        desktop.answer(command, { ok: true });
        await answers(desktop.client);
        return (await health(target, desktop)).recent_commands[0]?.decision === 'executed';
      };
    },
  },
  {
    name: 'route through the broker of Reach',
    hostOnly: true,
    api: keeping,
    async put(target) {
      (await pair(target)).client.terminate();
      const route = await routeOf(target);
      if (!route) throw new Error('the session has no route');
      return async () => (await routeOf(target))?.token === route.token && keeping.count('publish_route') === 2;
    },
  },
  {
    name: 'revocation that the broker of Reach has not confirmed',
    hostOnly: true,
    api: forgetful,
    async put(target) {
      forgetful.confirmsRevocations = false;
      const { token, prefix, client } = await pair(target);
      client.terminate();
      await routeOf(target);
      await target.fetch(`/sessions/${prefix}`, { method: 'DELETE', headers: bearer(token) });
      await vi.waitFor(() => expect(forgetful.count('revoke')).toBe(1), TIMEOUT);
      return async () => {
        await reachOf(target);
        return vi
          .waitFor(() => expect(forgetful.count('revoke')).toBe(2), TIMEOUT)
          .then(
            () => true,
            () => false,
          );
      };
    },
  },
  {
    name: 'broker of Reach that takes one use of a code',
    hostOnly: true,
    api: simple,
    async put(target) {
      simple.maxUses = 1;
      await reachOf(target);
      await target.operator('/pairing/mint', post({}));
      expect(simple.requests).toMatchObject([{ max_uses: 4 }, { max_uses: 1 }]);
      return async () => {
        await reachOf(target);
        await target.operator('/pairing/mint', post({}));
        const [, , next] = simple.requests;
        return next?.type === 'publish_bootstrap' && next.max_uses === 1;
      };
    },
  },
  {
    name: 'change that the mirror has not confirmed',
    async put(target) {
      const mirror = async (at: Target) => (await at.operator('/relay/mirror')).json();
      const waits = async () => (await mirror(target)).waiting.out === 1;
      if (target.runtime === 'node') {
        await target.operator('/relay/mirror', post({ url: 'http://127.0.0.1:1' }));
        (await pair(target)).client.terminate();
        return waits;
      }
      const home = await startNodeTarget();
      await target.operator('/relay/mirror', post({ key: (await mirror(home)).key }));
      (await pair(home)).client.terminate();
      await home.operator('/relay/mirror', post({ url: target.url }));
      const rows = async () => (await (await target.operator('/relay/devices')).json()).devices;
      await vi.waitFor(async () => expect((await rows()).length).toBe(1), TIMEOUT);
      await home.stop();
      await vi.waitFor(async () => expect((await mirror(target)).link).toBe('down'), TIMEOUT);
      await target.operator(`/sessions/${(await rows())[0].token_prefix}`, {
        method: 'DELETE',
        headers: { 'x-svc-operator': '1' },
      });
      return waits;
    },
  },
];

/** The response arrives after the interruption, when its caller may be gone. */
const unheard = (response: Promise<Response>): void => void response.then((r) => r.arrayBuffer()).catch(() => {});

const activityOf = async (target: Target) => (await (await target.operator('/bridge/activity')).json()).activity;

const secretOf = async (target: Target): Promise<Buffer> =>
  target.stored
    ? Buffer.from(JSON.parse((await target.stored('pairing', 'qr-secret')) ?? '{"secret":""}').secret, 'base64')
    : readFile(`${target.agentHome}/svc-relay-qr-secret`);

const README = new URL('../../storage/README.md', import.meta.url);

/** The cells of the table in the README, by state. */
async function readTable(): Promise<Map<string, Record<'node' | 'edge', string>>> {
  const readme = await readFile(README, 'utf8');
  const [, table = ''] = /^\| State .*\n\|[-| ]+\|\n((?:\|.*\n)+)/m.exec(readme) ?? [];
  const rows = table.trimEnd().split('\n');
  return new Map(
    rows.map((row) => {
      const [name = '', node = '', edge = ''] = row
        .split('|')
        .map((cell) => cell.trim())
        .slice(1);
      return [name, { node, edge }];
    }),
  );
}

/** The edge runtime puts an object away after ten seconds without events. */
const SLEEP = 13_000;

const runtimes = {
  node: {
    event: 'a restart',
    start: startNodeTarget,
    interrupt: (targets: Target[]) => Promise.all(targets.map((target) => target.restart())),
  },
  edge: {
    event: 'a sleep',
    start: startEdgeTarget,
    async interrupt(_targets: Target[], idle: Target[]) {
      await new Promise((resolve) => setTimeout(resolve, SLEEP));
      for (const target of idle) {
        const { uptime_seconds: uptime } = await (await target.operator('/relay/info')).json();
        if (uptime > 5) throw new Error(`an object has not slept: it has been up for ${uptime} s`);
      }
    },
  },
};

const expected = await readTable();

it('contract 00: every row of the table in storage/README.md has a case, and every case a row', () => {
  expect(STATES.map(({ name }) => name).sort()).toEqual([...expected.keys()].sort());
});

it('what only a host has is not at the edge', () => {
  const none = [...expected].filter(([, { edge }]) => edge === 'none').map(([name]) => name);
  expect(none).toEqual(STATES.filter(({ hostOnly }) => hostOnly).map(({ name }) => name));
});

it('design 4: every store has its keys in storage/README.md', async () => {
  const readme = await readFile(README, 'utf8');
  const [, keys = ''] = readme.split('## Every key');
  const stores = new Set([...keys.matchAll(/^\| `([\w-]+)`/gm)].map(([, store]) => store));
  expect([...stores].sort()).toEqual(Object.keys(LOCATIONS).sort());
});

describe.each(['node', 'edge'] as const)('contract 00, what survives [%s]:', (runtime) => {
  const { event, start, interrupt } = runtimes[runtime];
  const states = STATES.filter(({ hostOnly }) => runtime === 'node' || !hostOnly);
  const looks = new Map<string, () => Promise<boolean>>();
  const targets: Target[] = [];
  const idle: Target[] = [];

  beforeAll(async () => {
    // A relay for each: no case depends on another. All sleep at the same time.
    const prepared = await Promise.all(
      states.map(async (state) => {
        const target = await start({ env: { ...BEHIND_PROXY.env, ...(await state.api?.start()) } });
        targets.push(target);
        if (!state.keepsAwake) idle.push(target);
        await target.fetch('/health');
        return { state, target };
      }),
    );
    for (const isBrief of [false, true]) {
      const next = prepared.filter(({ state }) => (state.isBrief ?? false) === isBrief);
      await Promise.all(next.map(async ({ state, target }) => looks.set(state.name, await state.put(target))));
    }
    await interrupt(targets, idle);
  });
  afterAll(() => Promise.all(targets.map((target) => target.stop())));

  const briefFirst = states.toSorted((a, b) => Number(b.isBrief ?? false) - Number(a.isBrief ?? false));
  it.each(briefFirst)(`${event}, $name`, async ({ name }) => {
    const outcome: Outcome = (await looks.get(name)?.()) ? 'kept' : 'forgotten';
    expect(outcome).toBe(expected.get(name)?.[runtime]);
  });
});
