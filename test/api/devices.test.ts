import { expect, it, vi } from 'vitest';
import { describeMatrix, pair } from '../support/relay.ts';

describeMatrix('devices (contract 09 §2)', (start, runtime) => {
  it('§2: lists every session with its open connections', async () => {
    const target = await start();
    const list = async () => (await (await target.operator('/relay/devices')).json()).devices;
    expect(await list()).toEqual([]);

    const phone = await pair(target, { device: { device_name: 'Pixel 9' } });
    phone.client.send('proactive', 'proactive.subscribe', {});
    await phone.client.next({ type: 'proactive.subscribed' });
    const other = await pair(target, { device: { device_name: 'Desk' } });
    other.client.terminate();
    await vi.waitFor(async () => {
      const rows = (await list()) as { token_prefix: string; connections: unknown[] }[];
      expect(rows.find((row) => row.token_prefix === other.prefix)?.connections).toEqual([]);
    });

    const rows = (await list()) as { token_prefix: string; device_name: string }[];
    const row = rows.find(({ token_prefix: prefix }) => prefix === phone.prefix);
    const sessions = (await (await target.operator('/sessions', { headers: { 'x-svc-operator': '1' } })).json()) as {
      sessions: { token_prefix: string }[];
    };
    const session = sessions.sessions.find(({ token_prefix: prefix }) => prefix === phone.prefix);
    const { last_seen: _seen, ...facts } = session as Record<string, unknown> & { token_prefix: string };
    expect(row).toMatchObject({
      ...facts,
      connections: [
        {
          id: expect.any(String),
          route: runtime === 'edge' ? 'edge' : 'direct',
          stale: false,
          channels: {
            terminal: { shells: 0 },
            bridge: { in_flight: 0, last_answer_ms: null },
            proactive: { subscribed: true, mirror: false },
            tui: { attached: false },
            chat: { streams: 0 },
            desktop: { tools: [] },
          },
        },
      ],
    });
  });

  it('§2: is the operator’s alone', async () => {
    const target = await start();
    const { token } = await pair(target);
    const refused = await target.fetch('/relay/devices', {
      headers: { authorization: `Bearer ${token}`, origin: 'https://elsewhere.example' },
    });
    expect(refused.status).toBe(403);
  });
});
