import { expect, it } from 'vitest';
import { reconnect, startDesktop } from '../support/desktop.ts';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';
import { call, health } from './support.ts';

describeMatrix(
  'desktop tools at the edge',
  (start) => {
    it('desktops and control sessions are there again after a sleep of the object', { timeout: 60_000 }, async () => {
      const target = await start();
      const tools = ['desktop_terminal', 'desktop_computer_action'];
      const desktop = await startDesktop(target, { status: { advertised_tools: tools } });
      const nameless = await startDesktop(target, {
        device: { device_id: 'unknown', device_name: '' },
        status: { device_id: 'claimed', device_name: 'Claimed', advertised_tools: [] },
      });
      await nameless.report({ advertised_tools: ['desktop_zip'] });
      const beside = await reconnect(target, desktop, { status: { advertised_tools: ['desktop_zip'] } });
      const quiet = await startDesktop(target, { status: null });
      const callers = [await pair(target), await pair(target)] as const;
      const act = (caller: { token: string }) =>
        target.fetch(`/desktop/desktop_computer_action`, {
          ...post({ device: desktop.id }),
          headers: { ...bearer(caller.token), 'x-svc-relay-run-id': 'run' },
        });
      for (const caller of callers) expect((await act(caller)).status).toBe(200);
      const before = await health(target, desktop);

      // The local runtime puts an idle object with sleeping sockets away after about ten seconds without events.
      await new Promise((resolve) => setTimeout(resolve, 13_000));

      const after = await health(target, desktop);
      expect(after.recent_commands, 'the object has slept').toEqual([]);
      const shown = ({ clients }: typeof before) =>
        clients.map(({ last_seen_at: _, ...client }: { last_seen_at: number }) => JSON.stringify(client)).sort();
      expect(shown(after)).toEqual(shown(before));
      expect(shown(after)).toHaveLength(3);
      expect((await call(target, desktop, 'desktop_zip', { device: 'claimed' })).status).toBe(200);
      expect((await call(target, desktop, 'desktop_zip', { device: desktop.id })).status).toBe(200);
      expect([nameless, beside, quiet].map(({ commands }) => commands.length)).toEqual([1, 1, 0]);

      expect((await act(callers[0])).status).toBe(200);
      const sessions = desktop.commands.map(({ control_session }) => control_session?.id);
      expect(sessions[2], 'the control session is the same').toBe(sessions[0]);
      await target.fetch(`/sessions/${callers[1].prefix}`, { method: 'DELETE', headers: desktop.headers });
      const end = await desktop.client.next({ type: 'desktop.control_session_end' });
      expect(end.payload).toMatchObject({ id: sessions[1], reason: 'requester session ended' });
      desktop.client.close();
      await expect.poll(async () => (await health(target, nameless)).clients.length).toBe(2);
    });
  },
  ['edge'],
);
