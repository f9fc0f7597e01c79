import { beforeEach, describe, expect, it } from 'vitest';
import { createLog } from '../../../lib/log.ts';
import { type Mcp, openMcp } from '../../../lib/mcp/mcp.ts';
import { openGate } from '../../../lib/operations/gate.ts';
import type { Operation } from '../../../lib/operations/operation.ts';
import { createOperations, type OperationDeps } from '../../../lib/operations/table.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import type { Sessions } from '../../../lib/sessions/sessions.ts';
import { createStores } from '../../../storage/index.ts';
import type { Stores } from '../../../storage/schema.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { initialize } from '../../support/mcp.ts';

const MINUTE = 60_000;

let clock: TestClock;
let stores: Stores;
let ends: ((session: Session) => void)[];
let living: Map<string, Session>;
let offered: Operation[];

beforeEach(() => {
  clock = createTestClock();
  stores = createStores('node');
  ends = [];
  living = new Map();
  offered = createOperations({ bridge: { isOffered: () => true } } as unknown as OperationDeps).rows() as Operation[];
  for (const family of ['a', 'b']) living.set(family, { family, device: { name: family } } as Session);
});

async function open(): Promise<Mcp> {
  const log = createLog('ERROR', () => {});
  const sessions = {
    byFamily: (family: string) => living.get(family),
    onEnd: (listener: (session: Session) => void) => void ends.push(listener),
    onChange: () => {},
  } as unknown as Sessions;
  return openMcp({
    version: '1',
    operations: { list: () => offered, rows: () => [], get: () => undefined, call: () => Promise.reject() },
    sessions,
    gate: await openGate({ store: stores.open('freeze'), clock, log }),
    media: undefined,
    store: stores.open('mcp-sessions'),
    sleeps: false,
    clock,
    log,
  });
}

/** Sends a message; resolves with the head of the answer, whose body is read to its end. */
async function send(mcp: Mcp, body: unknown, id?: string, family = 'a', signal?: AbortSignal) {
  const headers: Record<string, string> = {
    accept: 'application/json, text/event-stream',
    'content-type': 'application/json',
  };
  if (id !== undefined) headers['mcp-session-id'] = id;
  const request = new Request('http://relay/mcp', { method: body ? 'POST' : 'GET', headers, signal });
  const response = await mcp.handle({ request, session: living.get(family) as Session, body });
  if (body) {
    await response.text();
    response.sent?.(true);
  }
  return response;
}

/** Announces the end of a paired session, whose family goes on after a refresh. */
async function end(family: string, { isRefreshed = false } = {}): Promise<void> {
  if (!isRefreshed) living.delete(family);
  for (const announce of ends) announce({ family } as Session);
  await Promise.resolve();
}

const begin = async (mcp: Mcp, family?: string): Promise<string> =>
  (await send(mcp, initialize(), undefined, family)).headers.get('mcp-session-id') as string;
const LIST = { jsonrpc: '2.0', id: 2, method: 'tools/list' };

describe('sessions of MCP', () => {
  it('leave the memory when idle and come back unnoticed, until a day has passed', async () => {
    const mcp = await open();
    const id = await begin(mcp);
    expect(mcp.count()).toBe(1);
    await clock.advanceAsync(16 * MINUTE);
    expect(mcp.count()).toBe(0);
    expect(clock.pending).toBe(0);
    expect((await send(mcp, LIST, id)).status).toBe(200);
    expect(mcp.count()).toBe(1);
    await clock.advanceAsync(25 * 60 * MINUTE);
    await expect(send(mcp, LIST, id)).rejects.toMatchObject({ kind: 'not-found' });
  });

  it('are at most 16, though more begin while the package loads', async () => {
    const mcp = await open();
    const begun = await Promise.allSettled(Array.from({ length: 24 }, () => begin(mcp)));
    expect(begun.filter(({ status }) => status === 'fulfilled')).toHaveLength(16);
    expect(begun).toContainEqual({ status: 'rejected', reason: expect.objectContaining({ kind: 'rate-limited' }) });
    expect(mcp.count()).toBe(16);
    expect(await stores.open('mcp-sessions').getKeys()).toHaveLength(16);
    await begin(mcp);
    expect(mcp.count()).toBe(16);
  });

  it('come back only as many as the memory may hold', async () => {
    const mcp = await open();
    const ids: [id: string, family: string][] = [];
    for (let peer = 0; peer < 33; peer++) {
      const family = `f${peer}`;
      living.set(family, { family, device: { name: family } } as Session);
      for (let count = 0; count < 16; count++) ids.push([await begin(mcp, family), family]);
    }
    await clock.advanceAsync(16 * MINUTE);
    expect(mcp.count()).toBe(0);
    for (const [id, family] of ids) expect((await send(mcp, LIST, id, family)).status).toBe(200);
    expect(mcp.count()).toBe(512);
  });

  it('come back after a restart, and not for another paired session', async () => {
    const mcp = await open();
    const id = await begin(mcp);
    mcp.stop();
    await expect(send(mcp, LIST, id)).rejects.toMatchObject({ kind: 'unavailable' });
    const next = await open();
    await expect(send(next, LIST, id, 'b')).rejects.toMatchObject({ kind: 'not-found' });
    expect((await send(next, LIST, id)).status).toBe(200);
    await end('a');
    expect(next.count()).toBe(0);
    expect(await stores.open('mcp-sessions').getKeys()).toEqual([]);
  });

  it('come back once for several requests at a time, so that all of their streams end with the paired session', async () => {
    const mcp = await open();
    const id = await begin(mcp);
    await clock.advanceAsync(16 * MINUTE);
    expect(mcp.count()).toBe(0);
    const [listening] = await Promise.all([send(mcp, undefined, id), send(mcp, LIST, id)]);
    const reader = (listening.content as ReadableStream<Uint8Array>).getReader();
    const read = async () => new TextDecoder().decode((await reader.read()).value);
    expect(await read()).toBe(': \n\n');
    await end('a');
    expect((await reader.read()).done).toBe(true);
  });

  it.each([
    ['resumes', true],
    ['begins', false],
  ])('end with the paired session that ends while one %s', async (_name, isResumed) => {
    const mcp = await open();
    const id = isResumed ? await begin(mcp) : undefined;
    await clock.advanceAsync(16 * MINUTE);
    const answer = send(mcp, isResumed ? undefined : initialize(), id);
    await Promise.resolve();
    await end('a');
    await expect(answer).rejects.toMatchObject({ kind: 'unauthorized' });
    expect(await stores.open('mcp-sessions').getKeys()).toEqual([]);
  });

  it('go on when their paired session is refreshed, and end with its family', async () => {
    const mcp = await open();
    const id = await begin(mcp);
    await end('a', { isRefreshed: true });
    expect((await send(mcp, LIST, id)).status).toBe(200);
    const session = living.get('a') as Session;
    await end('a');
    living.set('a', session);
    await expect(send(mcp, LIST, id)).rejects.toMatchObject({ kind: 'not-found' });
  });

  it('that come back while the relay stops come back after its restart', async () => {
    const mcp = await open();
    const id = await begin(mcp);
    await clock.advanceAsync(16 * MINUTE);
    const answer = send(mcp, undefined, id);
    await Promise.resolve();
    mcp.stop();
    await expect(answer).rejects.toMatchObject({ kind: 'unavailable' });
    expect((await send(await open(), LIST, id)).status).toBe(200);
  });

  it('are told when the list of tools is another one, once for many changes', async () => {
    const mcp = await open();
    const id = await begin(mcp);
    const leave = new AbortController();
    const listening = await send(mcp, undefined, id, 'a', leave.signal);
    const reader = (listening.content as ReadableStream<Uint8Array>).getReader();
    const read = async () => new TextDecoder().decode((await reader.read()).value);
    expect(await read()).toBe(': \n\n');
    mcp.devicesChanged();
    await clock.advanceAsync(200);
    offered = offered.slice(1);
    for (let change = 0; change < 5; change++) mcp.devicesChanged();
    await clock.advanceAsync(200);
    const text = await read();
    expect(text.match(/list_changed/g)).toHaveLength(1);
    await clock.advanceAsync(30 * MINUTE);
    expect(mcp.count()).toBe(1);
    await reader.cancel();
    await clock.advanceAsync(30 * MINUTE);
    expect(mcp.count()).toBe(0);
  });
});
