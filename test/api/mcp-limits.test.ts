import { expect, it } from 'vitest';
import { initialize, message } from '../support/mcp.ts';
import { silent, startPhone } from '../support/phone.ts';
import { bearer, describeMatrix, pair, type Target } from '../support/relay.ts';

const NODE: ('node' | 'edge')[] = ['node'];

async function begin(target: Target, token: string, name = 'raw'): Promise<Record<string, string>> {
  const response = await target.fetch('/mcp', message(token, initialize('2025-11-25', name)));
  await response.text();
  expect(response.status).toBe(200);
  return { 'mcp-session-id': response.headers.get('mcp-session-id') as string, 'mcp-protocol-version': '2025-11-25' };
}

const list = (id = 2) => ({ jsonrpc: '2.0', id, method: 'tools/list' });
const tap = (id: number) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name: 'android_tap', arguments: { x: 1, y: 1 } },
});
const cancel = (requestId: number) => ({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } });

describeMatrix(
  'limits of MCP (contract 09 §7)',
  (start) => {
    it('16 MCP sessions of a paired session: one more ends the one that is idle the longest', async () => {
      const target = await start();
      const { token } = await pair(target);
      const first = await begin(target, token);
      const second = await begin(target, token);
      for (let count = 2; count < 16; count++) await begin(target, token);
      const use = async (headers: Record<string, string>) => {
        const response = await target.fetch('/mcp', message(token, list(), headers));
        await response.text();
        return response.status;
      };
      expect(await use(first)).toBe(200);
      await begin(target, token);
      expect(await use(second)).toBe(404);
      expect(await use(first)).toBe(200);
      expect(target.relay?.mcp.count()).toBe(16);
      const other = await pair(target);
      expect(await use(await begin(target, other.token))).toBe(404);
    });

    it('64 calls under way: more are told to wait, a cancellation comes through, and there is room again', async () => {
      const target = await start();
      const { token } = await pair(target);
      await startPhone(target, { script: silent });
      const headers = await begin(target, token);
      const calls = Array.from({ length: 64 }, (_, id) => target.fetch('/mcp', message(token, tap(100 + id), headers)));
      await expect.poll(() => target.relay?.bridge.pendingCount()).toBe(64);
      const refused = await target.fetch('/mcp', message(token, tap(1), headers));
      expect(refused.status).toBe(429);
      expect(refused.headers.get('retry-after')).toBe('1');
      expect((await target.fetch('/mcp', message(token, list(), headers))).status).toBe(200);
      for (let id = 100; id < 164; id++) {
        const response = await target.fetch('/mcp', message(token, cancel(id), headers));
        expect(response.status).toBe(202);
      }
      await expect.poll(() => target.relay?.bridge.pendingCount()).toBe(0);
      expect(
        (await target.fetch('/mcp', message(token, { ...tap(1), params: { name: 'device_list' } }, headers))).status,
      ).toBe(200);
      await target.fetch('/mcp', { method: 'DELETE', headers: { ...bearer(token), ...headers } });
      for (const response of await Promise.all(calls)) await response.text();
    });

    it('a batch counts each of its calls', async () => {
      const target = await start();
      const { token } = await pair(target);
      await startPhone(target, { script: silent });
      const headers = { ...(await begin(target, token)), 'mcp-protocol-version': '2025-03-26' };
      const leave = new AbortController();
      const batch = Array.from({ length: 90 }, (_, id) => tap(100 + id));
      const pending = target
        .fetch('/mcp', { ...message(token, batch, headers), signal: leave.signal })
        .then((response) => response.body?.getReader().read());
      const text = new TextDecoder().decode((await pending)?.value);
      expect(text).toContain('busy');
      expect(target.relay?.bridge.pendingCount()).toBe(64);
      await target.fetch('/mcp', { method: 'DELETE', headers: { ...bearer(token), ...headers } });
      await expect.poll(() => target.relay?.bridge.pendingCount()).toBe(0);
      leave.abort();
    });

    it('a flood of calls that leave at once holds nothing back', async () => {
      const target = await start();
      const { token } = await pair(target);
      await startPhone(target, { script: silent });
      const headers = await begin(target, token);
      const leave = new AbortController();
      const flood = Array.from({ length: 300 }, (_, id) =>
        target.fetch('/mcp', { ...message(token, tap(100 + id), headers), signal: leave.signal }).then(
          ({ status }) => status,
          () => 0,
        ),
      );
      await expect.poll(() => target.relay?.bridge.pendingCount()).toBe(64);
      expect((await target.fetch('/health')).status).toBe(200);
      leave.abort();
      const statuses = new Set(await Promise.all(flood));
      expect([...statuses].every((status) => [0, 200, 429].includes(status))).toBe(true);
      // A lost connection is no cancellation: the calls end with the MCP session, or by themselves.
      expect((await target.fetch('/mcp', { method: 'DELETE', headers: { ...bearer(token), ...headers } })).status).toBe(
        200,
      );
      await expect.poll(() => target.relay?.bridge.pendingCount()).toBe(0);
      const again = await begin(target, token);
      expect((await target.fetch('/mcp', message(token, list(), again))).status).toBe(200);
    });

    it('bodies of 2 MiB, and no longer parameters of initialize than 4,096 characters', async () => {
      const target = await start();
      const { token } = await pair(target);
      const headers = await begin(target, token);
      const long = { ...list(), params: { _meta: { filler: 'x'.repeat(2 * 1024 * 1024) } } };
      expect((await target.fetch('/mcp', message(token, long, headers))).status).toBe(413);
      expect((await target.fetch('/mcp', message(token, initialize('2025-11-25', 'n'.repeat(5000))))).status).toBe(413);
      for (const body of [
        '',
        '[',
        'null',
        '{"jsonrpc":"2.0"}',
        '[]',
        '{"jsonrpc":"2.0","id":1,"method":"initialize"}',
      ]) {
        const { status } = await target.fetch('/mcp', message(token, body));
        expect([400, 413], body).toContain(status);
      }
    });
  },
  NODE,
);
