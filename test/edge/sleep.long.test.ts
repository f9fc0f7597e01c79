import { describe, it } from 'vitest';
import { connect } from '../support/client.ts';
import { call, health, reconnect as reconnectDesktop, startDesktop } from '../support/desktop.ts';
import { reconnect, startPhone } from '../support/phone.ts';
import { bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';
import { openAgent, runTask, saidIn } from '../support/voice/agent.ts';
import { holdRuns } from '../support/voice/agent-api.ts';
import { connectVoice } from '../support/voice/client.ts';
import { createOutput } from '../support/voice/output.ts';

/** Waits until the object of a relay has been evicted. */
async function sleepOfTheObject(target: Target): Promise<void> {
  await target.asleep?.();
  const { uptime_seconds: uptime } = await (await target.operator('/relay/info')).json();
  if (uptime > 5) throw new Error(`the object has not slept: it is up for ${uptime} s`);
}

describeMatrix(
  'the edge',
  (start) => {
    it('contract 00: sockets work after a sleep of the object', async ({ expect }) => {
      const target = await start();
      const { client, token, prefix } = await pair(target);
      const watcher = await pair(target);
      watcher.client.terminate();

      await sleepOfTheObject(target);

      client.send('system', 'ping', { ts: 5 }, 'awake');
      expect((await client.next({ id: 'awake' })).payload).toEqual({ ts: 5 });
      expect((await (await target.fetch('/health')).json()).clients).toBe(1);
      await target.fetch(`/sessions/${prefix}`, { method: 'DELETE', headers: bearer(token) });
      expect(await client.closed()).toEqual({ code: 4401, reason: 'session revoked' });
    });

    it('closes a socket of a row that cannot be restored', async ({ expect }) => {
      const target = await start();
      const client = await connect(target.wsUrl.replace(/ws$/, 'test/echo/1'));
      await client.next();
      const failing = await connect(target.wsUrl.replace(/ws$/, 'test/failing/restore'));
      await failing.next();

      await sleepOfTheObject(target);

      expect(await client.closed()).toEqual({ code: 1012, reason: 'the relay was asleep' });
      expect(await failing.closed()).toEqual({ code: 1011, reason: 'internal error' });
      await expect.poll(() => target.log.join('\n')).toContain('/test/failing/:step failed: restore fails');
    });
  },
  ['edge'],
  describe.concurrent,
);

describeMatrix(
  'the bridge at the edge',
  (start) => {
    // One sleep covers both channels that remember phones, because it takes long.
    it('contract 00: phones keep their state and their subscription over a sleep of the object', {
      timeout: 300_000,
    }, async ({ expect }) => {
      const target = await start();
      const first = await startPhone(target, { device: { device_id: 'id-1', device_name: 'First' } });
      const status = { battery: 7, bridge: { device_control_supported: true } };
      const second = await startPhone(target, { device: { device_id: 'id-2', device_name: 'Second' }, status });
      const store = { bridge: { device_control_supported: false }, filler: 'x'.repeat(100_000) };
      const third = await startPhone(target, { device: { device_id: 'id-3', device_name: 'Third' }, status: store });
      const older = await startPhone(target, { device: { device_id: 'id-4', device_name: 'Fourth' } });
      const newer = await reconnect(target, older);
      const silent = await startPhone(target, { device: { device_id: 'id-5' }, status: null });
      const caller = await pair(target);
      const message = async (id: string) =>
        (await target.operator('/phone/message', post({ text: 'x', message_id: id }))).json();
      for (const { client } of [first, third, second]) {
        client.send('proactive', 'proactive.subscribe');
        await client.next({ type: 'proactive.subscribed' });
      }
      third.client.send('proactive', 'proactive.unsubscribe');
      await third.settled();
      await target.operator('/bridge/select-active', post({ device: 'second' }));
      await target.fetch('/ping', { headers: bearer(caller.token) });

      await sleepOfTheObject(target);

      const { activity } = await (await target.operator('/bridge/activity')).json();
      expect(activity).toMatchObject([{ path: '/ping', decision: 'executed', device_id: 'id-2' }]);
      const devices = await (await target.operator('/bridge/devices')).json();
      expect(devices).toMatchObject({ count: 4, active_device_id: 'id-2', most_recent_device_id: 'id-4' });
      const get = (path: string) => target.fetch(path, { headers: bearer(caller.token) });
      expect((await get('/screen')).status).toBe(200);
      expect(second.commands).toHaveLength(2);
      expect(await (await target.operator('/bridge/status')).json()).toMatchObject({ ...status, active: true });
      expect((await get('/screen?device=third')).status).toBe(403);
      expect((await get('/ping?device=third')).status).toBe(200);
      expect((await get('/ping?device=first')).status).toBe(200);
      await older.report();
      expect((await get('/ping?device=fourth')).status).toBe(200);
      expect([first, third, older, newer, silent].map(({ commands }) => commands.length)).toEqual([1, 1, 0, 1, 0]);

      expect(await message('m1')).toMatchObject({ delivered: true });
      await second.client.next({ id: 'm1' });
      second.client.send('proactive', 'proactive.unsubscribe');
      second.client.send('proactive', 'proactive.reply', { text: 'x' }, 'r1');
      await second.client.next({ id: 'r1' });
      expect(await message('m2')).toMatchObject({ delivered: true });
      await first.client.next({ id: 'm2' });

      second.client.close();
      await expect.poll(async () => (await (await target.operator('/bridge/devices')).json()).count).toBe(3);
    });
  },
  ['edge'],
  describe.concurrent,
);

describeMatrix(
  'desktop tools at the edge',
  (start) => {
    it('contract 00: desktops and control sessions outlast a sleep of the object', async ({ expect }) => {
      const target = await start();
      const tools = ['desktop_terminal', 'desktop_computer_action'];
      const desktop = await startDesktop(target, { status: { advertised_tools: tools } });
      const nameless = await startDesktop(target, {
        device: { device_id: 'unknown', device_name: '' },
        status: { device_id: 'claimed', device_name: 'Claimed', advertised_tools: [] },
      });
      await nameless.report({ advertised_tools: ['desktop_zip'] });
      const beside = await reconnectDesktop(target, desktop, { status: { advertised_tools: ['desktop_zip'] } });
      const quiet = await startDesktop(target, { status: null });
      const callers = [await pair(target), await pair(target)] as const;
      const act = (caller: { token: string }) =>
        target.fetch(`/desktop/desktop_computer_action`, {
          ...post({ device: desktop.id }),
          headers: { ...bearer(caller.token), 'x-svc-relay-run-id': 'run' },
        });
      for (const caller of callers) expect((await act(caller)).status).toBe(200);
      const before = await health(target, desktop);

      await sleepOfTheObject(target);

      const after = await health(target, desktop);
      expect(after.recent_commands).toEqual(before.recent_commands);
      expect(after.recent_commands).toHaveLength(2);
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
  describe.concurrent,
);

describeMatrix(
  'voice at the edge',
  (start) => {
    it('contract 05 §12: a living session keeps its object awake, attached or not', async ({ expect }) => {
      const target = await start();
      const { token } = await pair(target);
      const waiting = await createOutput(target, token);
      const attached = await createOutput(target, token);
      const first = await connectVoice(target, attached.websocket_path, token);
      first.send({ type: 'response.create', text: 'hello' });
      await first.next('voice.response.done');

      await new Promise((resolve) => setTimeout(resolve, 13_000));

      const second = await connectVoice(target, attached.websocket_path, token);
      second.send({ type: 'session.resume', resume_token: attached.resume_token, last_audio_event_id: 3 });
      const replayed = await second.through('voice.replay.done');
      expect(replayed.filter(({ type }) => type === 'voice.audio.delta').map((event) => event.audio_event_id)).toEqual([
        4, 5, 6, 7, 8,
      ]);
      expect((await first.closed()).code).toBe(4000);
      const late = await connectVoice(target, waiting.websocket_path, token);
      await late.next('voice.session.ready');
      for (const client of [second, late]) {
        client.send({ type: 'session.close' });
        expect((await client.closed()).code).toBe(1000);
      }
    });
  },
  ['edge'],
  describe.concurrent,
);

const ANSWER = 'There are 17 meetings on Thursday, the longest with Marguerite about the budget.';

describeMatrix(
  'the realtime agent at the edge',
  (start) => {
    it('contract 06 §8: a session keeps its object awake, and a run in the background, while the phone is off', async ({
      expect,
      onTestFinished,
    }) => {
      const { client, api, connect, resume } = await openAgent(start, {
        onEnd: onTestFinished,
        turns: [runTask('a long one', { mode: 'background' }), { text: 'I have begun.' }, { text: ANSWER }],
      });
      const finish = holdRuns(api, ANSWER);
      client.send({ type: 'response.create', text: 'Do it' });
      const { event_id } = await client.next('voice.response.done');
      client.terminate();
      await new Promise((resolve) => setTimeout(resolve, 13_000));
      finish();
      const next = await connect();
      next.send(resume({ last_event_id: event_id }));
      await expect.poll(() => next.events.filter(({ type }) => type === 'voice.response.done')).toHaveLength(1);
      expect(next.events.filter(({ type }) => type === 'svc.run.background_completed')).toMatchObject([{ ok: true }]);
      expect(saidIn(next.events)).toBe(ANSWER);
    });
  },
  ['edge'],
  describe.concurrent,
);
