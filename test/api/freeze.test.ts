import { expect, it } from 'vitest';
import { eventsUntil, send as sendChat, setUp as setUpChat } from '../support/chat.ts';
import { call, refusalOf, silent as silentDesktop, startDesktop } from '../support/desktop.ts';
import { loseGrant, silent, startPhone } from '../support/phone.ts';
import { authenticate, bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';
import { openAgent, runTask, saidIn } from '../support/voice/agent.ts';
import { holdRuns } from '../support/voice/agent-api.ts';

const freeze = (target: Target, reason?: unknown): Promise<Response> =>
  target.operator('/relay/freeze', post(reason === undefined ? {} : { reason }));
const thaw = (target: Target): Promise<Response> => target.operator('/relay/freeze', { method: 'DELETE' });
const bodyOf = async (response: Response) => (await response.json()) as Record<string, unknown>;
const activityOf = async (target: Target) =>
  (await bodyOf(await target.operator('/bridge/activity'))).activity as Record<string, unknown>[];

/** The text of a stream up to something in it; the rest is not read. */
async function readUntil(response: Response, wanted: RegExp): Promise<string> {
  let text = '';
  for await (const chunk of response.body as ReadableStream<Uint8Array>) {
    text += new TextDecoder().decode(chunk);
    if (wanted.test(text)) break;
  }
  return text;
}

describeMatrix('freeze (contract 09 §3)', (start) => {
  it('is begun by the operator or any device, and ended by the operator or one that may drive phones', async () => {
    const target = await start();
    const weak = await pair(target, { device: { device_name: 'Watch' } });
    await loseGrant(target, weak);
    const request = { ...post({ reason: 'lost my phone' }), headers: bearer(weak.token) };
    const begun = await bodyOf(await target.fetch('/relay/freeze', request));
    expect(begun).toEqual({ frozen: true, since: expect.any(Number), by: 'Watch', reason: 'lost my phone' });
    expect(begun.since).toBeGreaterThan(Date.now() / 1000 - 60);
    expect(await bodyOf(await freeze(target, 'something else'))).toEqual(begun);
    expect(await bodyOf(await target.fetch('/health'))).toMatchObject({ frozen: true });
    expect((await bodyOf(await target.operator('/relay/info'))).freeze).toEqual(begun);

    const end = { method: 'DELETE', headers: bearer(weak.token) };
    expect((await target.fetch('/relay/freeze', end)).status).toBe(403);
    const phone = await startPhone(target);
    const ended = await target.fetch('/relay/freeze', { method: 'DELETE', headers: phone.headers });
    expect([ended.status, await ended.json()]).toEqual([200, { frozen: false }]);
    expect(await bodyOf(await thaw(target))).toEqual({ frozen: false });
    expect(await bodyOf(await target.fetch('/health'))).not.toHaveProperty('frozen');
    expect(await bodyOf(await target.operator('/relay/info'))).not.toHaveProperty('freeze');
  });

  it('is not for strangers, and takes no nonsense', async () => {
    const target = await start();
    for (const method of ['POST', 'DELETE']) {
      expect((await target.fetch('/relay/freeze', { method, headers: bearer('none') })).status).toBe(401);
      expect(
        (await target.fetch('/relay/freeze', { method, headers: { origin: 'https://evil.test' } })).status,
      ).not.toBe(200);
    }
    for (const reason of [1, null, ['a'], {}]) expect((await freeze(target, reason)).status).toBe(400);
    expect((await target.operator('/relay/freeze', { method: 'POST', body: '[' })).status).toBe(400);
    expect((await bodyOf(await target.fetch('/health'))).frozen).toBeUndefined();
    const long = await bodyOf(await freeze(target, `a\n${'é'.repeat(300)}`));
    expect(long.reason).toBe(`a ${'é'.repeat(198)}`);
  });

  it('fails commands under way with 423, tells the phone, and drops its late response', async () => {
    const target = await start();
    const phone = await startPhone(target, { device: { device_name: 'Pixel 9' }, script: silent });
    const under = target.fetch('/tap', { ...post({ x: 1, y: 2 }), headers: phone.headers });
    const command = await phone.received();
    await freeze(target, 'stop');
    const refused = await under;
    expect(refused.status).toBe(423);
    expect(await refused.json()).toEqual({
      ok: false,
      error: 'frozen by operator: stop',
      error_code: 'frozen',
    });
    const cancel = await phone.client.next({ channel: 'bridge', type: 'bridge.cancel' });
    expect(cancel.payload).toEqual({ request_id: command.request_id, reason: 'frozen' });
    phone.answer(command, { status: 200, result: {} });
    await phone.settled();
    expect(await activityOf(target)).toMatchObject([
      { path: '/tap', decision: 'frozen', response_status: null, error: 'frozen by operator: stop' },
    ]);
  });

  it('answers new commands at once, reading ones too, and reaches no device; /ping is answered', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const desktop = await startDesktop(target);
    await freeze(target);
    for (const [path, init] of [
      ['/screen', {}],
      ['/tap', post({ x: 1, y: 2 })],
      ['/tap?device=nobody', post({})],
    ] as const) {
      const refused = await target.fetch(path, {
        ...init,
        headers: { ...phone.headers, 'x-svc-relay-run-id': 'run-7' },
      });
      expect([refused.status, await refused.json()]).toEqual([
        423,
        { ok: false, error: 'frozen by operator', error_code: 'frozen' },
      ]);
    }
    expect(await refusalOf(call(target, desktop, 'desktop_terminal'))).toEqual([423, 'frozen']);
    expect(phone.commands).toEqual([]);
    expect(desktop.commands).toEqual([]);
    expect((await target.fetch('/ping', { headers: phone.headers })).status).toBe(200);
    expect((await target.fetch('/desktop/_ping', { headers: desktop.headers })).status).toBe(200);
    const [ping, ...refused] = await activityOf(target);
    expect(ping).toMatchObject({ path: '/ping', decision: 'executed' });
    expect(refused).toHaveLength(3);
    for (const record of refused) {
      expect(record).toMatchObject({
        decision: 'frozen',
        actor: { kind: 'session', name: 'Phone', prefix: phone.prefix, run_id: 'run-7' },
      });
    }

    await thaw(target);
    expect((await target.fetch('/screen', { headers: phone.headers })).status).toBe(200);
    expect((await call(target, desktop, 'desktop_terminal')).status).toBe(200);
  });

  it('fails desktop tools under way', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { script: silentDesktop });
    const under = call(target, desktop, 'desktop_terminal', { command: 'make' });
    const command = await desktop.received();
    await freeze(target);
    expect(await refusalOf(under)).toEqual([423, 'frozen']);
    const cancel = await desktop.client.next({ channel: 'desktop', type: 'desktop.cancel' });
    expect(cancel.payload).toEqual({ request_id: command.request_id, reason: 'frozen' });
  });

  it('ends a run of realtime voice in the background, has that said in one sentence, and lets none begin', async () => {
    const sentence = 'frozen by operator: stop';
    const { target, api, client } = await openAgent(start, {
      turns: [
        runTask('first', { mode: 'background' }),
        { text: 'I have begun.' },
        { text: sentence },
        runTask('second'),
        { text: sentence },
      ],
    });
    holdRuns(api, 'never heard');
    client.send({ type: 'response.create', text: 'Do it' });
    expect(saidIn(await client.through('voice.response.done'))).toBe('I have begun.');
    await expect.poll(() => api.runs).toHaveLength(1);
    await freeze(target, 'stop');
    const ended = await client.through('voice.response.done');
    expect(ended.map(({ type }) => type)).toContain('svc.run.cancelled');
    expect(saidIn(ended)).toBe(sentence);

    client.send({ type: 'response.create', text: 'Again' });
    expect(saidIn(await client.through('voice.response.done'))).toBe(sentence);
    expect(api.runs).toHaveLength(1);
  });

  it('stops no chat that the owner types', async () => {
    const { api, target, client } = await setUpChat(start);
    await freeze(target);
    await client.next({ channel: 'system', type: 'frozen' });
    sendChat(client, 'c1', { message: 'hi', session_id: 's1' });
    expect((await eventsUntil(client, 'c1', 'done')).at(-1)?.payload).toMatchObject({ state: 'final' });
    expect(api.requests).toHaveLength(1);
  });

  it('is told to every socket, to later ones after auth.ok, and to followers of the events', async () => {
    const target = await start();
    const watch = await pair(target);
    await loseGrant(target, watch);
    const frozen = { frozen: true, since: expect.any(Number), by: 'operator', reason: 'now' };
    await freeze(target, 'now');
    expect((await watch.client.next({ channel: 'system', type: 'frozen' })).payload).toEqual(frozen);
    const { client, frame } = await authenticate(target, { session_token: watch.token });
    expect(frame.type).toBe('auth.ok');
    expect((await client.next()).payload).toEqual(frozen);
    await thaw(target);
    expect((await client.next({ channel: 'system', type: 'frozen' })).payload).toEqual({ frozen: false });
    expect((await watch.client.next({ channel: 'system', type: 'frozen' })).payload).toEqual({ frozen: false });
    const later = await authenticate(target, { session_token: watch.token });
    later.client.send('system', 'ping', {}, 'p');
    expect((await later.client.next()).type).toBe('pong');
  });

  it('§9: activity, events and log name who acted, also of desktops and runs of voice', async () => {
    const { target, api, client } = await openAgent(start, { turns: [runTask('it')] });
    holdRuns(api, 'never heard');
    client.send({ type: 'response.create', text: 'Do it' });
    await client.next('svc.run.started');
    const phone = await startPhone(target);
    await startDesktop(target);
    const { token, prefix } = await pair(target, { device: { device_name: 'the agent' } });
    const events = await target.operator('/relay/events');
    const headers = { ...bearer(token), 'x-svc-relay-run-id': 'run-1' };
    expect((await target.fetch('/tap', { ...post({ x: 1, y: 2 }), headers })).status).toBe(200);
    expect((await target.fetch('/desktop/desktop_terminal', { ...post({}), headers: bearer(token) })).status).toBe(200);
    await target.operator('/phone/message', post({ text: 'done', message_id: 'm1' }));

    const actor = { kind: 'voice', name: 'the agent', prefix, run_id: 'run-1' };
    expect(await activityOf(target)).toMatchObject([{ path: '/tap', device_name: 'Phone', actor }]);
    const { activity } = await bodyOf(await target.operator('/desktop/activity?limit=5'));
    const tool = { tool: 'desktop_terminal', device_name: 'PC', actor: { kind: 'session', name: 'the agent', prefix } };
    expect(activity).toMatchObject([tool]);
    expect(await readUntil(events, /event: desktop\ndata: .*"decision":"executed"/)).toMatch(
      /event: bridge\ndata: .*"actor":\{"kind":"voice","name":"the agent"/,
    );
    const { lines } = (await bodyOf(await target.operator('/relay/log'))) as {
      lines: { level: string; text: string }[];
    };
    const infos = lines.filter(({ level }) => level === 'INFO').map(({ text }) => text);
    expect(infos).toContainEqual(
      expect.stringMatching(`^POST /tap on .+: executed 200 in \\d+ ms for voice the agent ${prefix}$`),
    );
    expect(infos).toContainEqual(
      expect.stringMatching(`^desktop_terminal on .+: executed 200 in \\d+ ms for session the agent ${prefix}$`),
    );
    expect(infos).toContainEqual('message m1 of 4 characters for chat - for operator: queued as one of 1');
    expect(phone.commands).toHaveLength(1);
  });

  it('outlives a restart, and so does its end', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const begun = await bodyOf(await freeze(target, 'before'));
    await target.restart();
    expect(await bodyOf(await target.fetch('/health'))).toMatchObject({ frozen: true });
    expect((await target.fetch('/screen', { headers: phone.headers })).status).toBe(423);
    expect(await bodyOf(await freeze(target))).toEqual(begun);
    await thaw(target);
    await target.restart();
    expect(await bodyOf(await target.fetch('/health'))).not.toHaveProperty('frozen');
  });

  it('stops nothing of the owner: messages, replies, uploads and reads go on', async () => {
    const target = await start();
    const phone = await startPhone(target);
    await freeze(target);
    phone.client.send('proactive', 'proactive.subscribe', {});
    await phone.settled();
    expect((await target.operator('/phone/message', post({ text: 'still here' }))).status).toBe(200);
    expect((await phone.client.next({ channel: 'proactive', type: 'phone.message' })).payload.text).toBe('still here');
    phone.client.send('proactive', 'proactive.reply', { text: 'yes' });
    await phone.settled();
    expect(JSON.stringify(await bodyOf(await target.operator('/phone/replies')))).toContain('yes');
    const form = new FormData();
    form.set('file', new Blob(['text'], { type: 'text/plain' }), 'note.txt');
    const upload = await target.fetch('/media/upload', { method: 'POST', body: form, headers: phone.headers });
    expect(upload.status).toBe(200);
    for (const path of ['/sessions', '/notifications/recent', '/phone/history']) {
      expect((await target.fetch(path, { headers: phone.headers })).status, path).toBe(200);
    }
    for (const path of ['/bridge/status', '/bridge/devices', '/relay/devices', '/relay/log']) {
      expect((await target.operator(path)).status, path).toBe(200);
    }
  });
});
