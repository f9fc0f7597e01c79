import { readdir, readFile, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type Exchange, whenAbandoned } from '../support/fake-api-server.ts';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';
import {
  AGENT_KEY,
  createAgent,
  openAgent,
  REALTIME_KEY,
  requestAgent,
  runTask,
  saidIn,
  sentTo,
  setUpAgent,
  typesOf,
} from '../support/voice/agent.ts';
import { holdRuns } from '../support/voice/agent-api.ts';
import { sinePcm } from '../support/voice/audio.ts';
import { connectVoice, refusedVoice, type VoiceEvent } from '../support/voice/client.ts';

const STUB = { provider: 'stub' };
const ANSWER = 'There are 17 meetings on Thursday, the longest with Marguerite about the budget.';
const TOOLS = ['svc_run_task', 'svc_get_status', 'svc_cancel', 'svc_confirm'];

const say = (text: string) => ({ type: 'response.create', text });
/** A run of the agent that ends with this answer. */
const answering = (text: string) => async (run: Exchange) => {
  run.open();
  await run.event({ type: 'run.started', run_id: 'run-1' });
  await run.event({ type: 'assistant.delta', delta: text });
  await run.event({ type: 'run.completed', run_id: 'run-1' });
  run.end();
};
const ofType = (events: readonly VoiceEvent[], type: string) => events.filter((event) => event.type === type);

describeMatrix('POST /voice/realtime-agent/session (contract 06 §3.3)', (start, runtime) => {
  it('makes a session of the chosen provider', async () => {
    const { target, token } = await setUpAgent(start);
    const answer = await createAgent(target, token, { model: ' ', chat_session_id: 'chat 1', voice: 'cedar' });
    expect(answer).toEqual({
      success: true,
      session_id: expect.stringMatching(/^[\w-]{24}$/),
      websocket_path: `/voice/realtime-agent/${answer.session_id}`,
      resume_token: expect.stringMatching(/^[\w-]{43}$/),
      resume_supported: true,
      resume_ttl_ms: 30_000,
      provider: 'openai_realtime',
      model: 'gpt-realtime-2.1',
      voice: 'cedar',
      sample_rate: 24_000,
      event_log_path: runtime === 'node' ? expect.stringMatching(/\/realtime-agent-\d{8}-\d{6}-\w+\.jsonl$/) : '',
      protocol: 'svc.voice.realtime_agent.v0',
      profile: null,
      chat_session_id: 'chat 1',
      context_message_count: 0,
      config_scope: 'relay',
      config_path: null,
      fallback_to_global: false,
      experimental: true,
      tool_surface: TOOLS,
    });
  });

  it('takes the aliases of a provider, as PATCH does', async () => {
    const target = await start();
    const { token } = await pair(target);
    const options = { method: 'POST', body: '{"provider":" OpenAI "}', headers: bearer(token) };
    const response = await target.fetch('/voice/realtime-agent/session', options);
    expect(await response.text()).toMatch(/"provider":"openai_realtime"/);
  });

  it.each([
    ['no JSON', '{', 400, /invalid JSON body/],
    ['no object', '[1]', 400, /object/],
    ['an unknown provider', '{"provider":"nobody"}', 400, /unknown voice provider/],
    [
      'a provider that only speaks',
      '{"provider":"openai_tts"}',
      400,
      /openai_tts is not a native realtime-agent provider/,
    ],
    ['a rate below 8000', '{"sample_rate":7999}', 400, /sample_rate/],
    ['a rate above 96000', '{"sample_rate":96001}', 400, /sample_rate/],
    ['a chat session id of 201 characters', `{"chat_session_id":"${'x'.repeat(201)}"}`, 400, /at most 200/],
    ['a control character in it', '{"chat_session_id":"a\\u0007b"}', 400, /control characters/],
    ['a path for it', '{"chat_session_id":".."}', 400, /path/],
    ['a number for it', '{"chat_session_id":7}', 400, /chat_session_id must be a string/],
    ['a text for a switch', '{"final_answer_only":"yes"}', 400, /final_answer_only must be a boolean/],
    ['more than 2 MiB', `{"model":"${'x'.repeat(2 * 1024 * 1024)}"}`, 413, /./],
  ])('refuses %s', async (_name, body, status, message) => {
    const target = await start();
    const { token } = await pair(target);
    const response = await target.fetch('/voice/realtime-agent/session', {
      method: 'POST',
      body,
      headers: bearer(token),
    });
    expect([response.status, response.headers.get('content-type')]).toEqual([
      status,
      expect.stringMatching(/^text\/plain/),
    ]);
    expect(await response.text()).toMatch(message);
  });

  it('is 401 and 403 before anything else, 404 while disabled, 405 for other methods', async () => {
    const target = await start({ env: { RELAY_REALTIME_VOICE_ENABLED: '0' } });
    const { token } = await pair(target);
    const without = await pair(target, { policy: { without: ['voice:realtime'] } });
    expect((await target.fetch('/voice/realtime-agent/session', post({}))).status).toBe(401);
    const forbidden = await requestAgent(target, without.token);
    expect([forbidden.status, await forbidden.text()]).toEqual([403, 'session lacks active voice:realtime grant']);
    const disabled = await requestAgent(target, token);
    expect([disabled.status, await disabled.text()]).toEqual([404, 'realtime agent voice is disabled']);
    expect((await target.fetch('/voice/realtime-agent/session', { headers: bearer(token) })).status).toBe(405);
  });

  it('takes the context that it is given, else the last messages of the chat session', async () => {
    const { target, token, api, script } = await setUpAgent(start, { sessions: ['chat 1'] });
    const given = [{ role: 'User', content: '  the  cat ' }, { role: 'tool', content: 'x' }, 'x', { role: 'user' }];
    const first = await createAgent(target, token, { context_messages: given, chat_session_id: 'chat 1' });
    expect(first.context_message_count).toBe(1);
    expect(api.requests).toEqual([]);
    api.messages = { messages: [{ role: 'assistant', content: [{ text: 'the dog' }] }] };
    const second = await createAgent(target, token, { chat_session_id: 'chat 1', context_messages: 'none' });
    expect(second).toMatchObject({ context_message_count: 1, chat_session_id: 'chat 1' });
    expect(api.requests.map(({ path }) => path)).toEqual(['/api/sessions/chat%201/messages']);
    for (const { websocket_path } of [first, second]) {
      const client = await connectVoice(target, websocket_path, token);
      onTestFinished(() => client.terminate());
      await client.next('voice.session.ready');
    }
    const instructions = script.conversations.map(({ sent }) => JSON.stringify(sent('session.update')));
    expect(instructions).toEqual([
      expect.stringContaining('User: the cat'),
      expect.stringContaining('Assistant (svc_session): the dog'),
    ]);
    api.messages = 'no list';
    expect(await createAgent(target, token, { chat_session_id: 'x' })).toMatchObject({ context_message_count: 0 });
  });

  it('a caller may have eight: the oldest without a socket gives way, else 503', async () => {
    const target = await start();
    const { token } = await pair(target);
    const sessions = [];
    for (let count = 0; count < 9; count++) sessions.push(await createAgent(target, token, STUB));
    expect(await refusedVoice(target, sessions[0]?.websocket_path as string, token)).toMatchObject({ status: 410 });
    for (const { websocket_path } of sessions.slice(1)) {
      const client = await connectVoice(target, websocket_path, token);
      onTestFinished(() => client.terminate());
      client.send({ type: 'session.start' });
      await client.next('voice.session.ready');
    }
    const refused = await requestAgent(target, token, STUB);
    expect([refused.status, await refused.text()]).toEqual([503, 'too many voice sessions']);
    const other = await pair(target);
    expect((await requestAgent(target, other.token, STUB)).status).toBe(200);
  });
});

describeMatrix('the socket of a session (contract 06 §4)', (start, runtime) => {
  it('is for its principal, needs an upgrade, and is remembered as gone', async () => {
    const { target, token, session, connect } = await setUpAgent(start, { body: STUB });
    const { websocket_path: path } = session;
    const other = await pair(target);
    expect(await refusedVoice(target, path, other.token)).toMatchObject({ status: 403 });
    expect(await refusedVoice(target, path, '')).toMatchObject({ status: 401 });
    expect(await refusedVoice(target, '/voice/realtime-agent/unknown', token)).toMatchObject({ status: 404 });
    expect((await target.fetch(path, { headers: bearer(token) })).status).toBe(426);
    const client = await connect();
    client.send({ type: 'session.close' });
    expect(await client.closed()).toMatchObject({ code: 1000 });
    expect(await refusedVoice(target, path, token)).toMatchObject({ status: 410 });
    const next = await createAgent(target, token, STUB);
    await target.restart();
    expect(await refusedVoice(target, next.websocket_path, token)).toMatchObject({ status: 404 });
  });

  it('connects the provider for the first one, and says what it is', async () => {
    const { ready, session, script } = await openAgent(start, { body: { chat_session_id: 'c1' }, sessions: ['c1'] });
    expect(ready).toMatchObject({
      event_id: 1,
      session_id: session.session_id,
      provider: 'openai_realtime',
      model: 'gpt-realtime-2.1',
      voice: 'marin',
      sample_rate: 24_000,
      event_log_path: session.event_log_path,
      mode: 'realtime_agent',
      experimental: true,
      resume_supported: true,
      resume_ttl_ms: 30_000,
      last_event_id: 0,
      last_audio_event_id: 0,
      last_input_chunk_id: 0,
      profile: null,
      chat_session_id: 'c1',
      config_scope: 'relay',
      config_path: null,
      tool_surface: TOOLS,
      interface: { engine: 'realtime_agent', chat_session_id: 'c1', current_date: expect.any(String) },
    });
    const [conversation] = script.conversations;
    expect(conversation?.socket.headers.authorization).toBe(`Bearer ${REALTIME_KEY}`);
    const [update] = sentTo<{ session: { tools: { name: string }[] } }>(script, 'session.update');
    expect(update?.session.tools.map(({ name }) => name)).toEqual(TOOLS);
  });

  it('stays attachable when the provider cannot be connected', async () => {
    const { provider, connect } = await setUpAgent(start);
    provider.refuseSockets(401);
    for (let count = 0; count < 2; count++) {
      const client = await connect();
      client.send({ type: 'session.start' });
      const { message, provider: id } = await client.next('voice.error');
      expect([message, id]).toEqual([expect.stringMatching(/Realtime rejected the relay auth/), 'openai_realtime']);
      expect(message).toContain('OPENAI_REALTIME_API_KEY');
      expect(await client.closed()).toMatchObject({ code: 1000 });
    }
  });

  it('says which keys are missing', async () => {
    // A server of this machine may need none.
    const env = { OPENAI_REALTIME_API_KEY: '', OPENAI_API_KEY: '', OPENAI_REALTIME_URL: 'wss://speech.invalid/v1' };
    const { connect } = await setUpAgent(start, { env });
    const client = await connect();
    expect((await client.next('voice.error')).message).toMatch(/OpenAI Realtime auth is not configured/);
  });

  it('reads what came meanwhile once the provider is there', async () => {
    const { connect, script } = await setUpAgent(start, {
      transcripts: ['what is new'],
      turns: [{ text: 'Nothing.' }],
    });
    const client = await connect();
    const audio_base64 = Buffer.from(sinePcm(0.2, 16_000)).toString('base64');
    client.send({ type: 'session.start' });
    client.send({ type: 'input_audio.append', audio_base64, sample_rate: 16_000, chunk_id: 1 });
    client.send({ type: 'input_audio.append', audio_base64, sample_rate: 16_000, chunk_id: 1 });
    client.send({ type: 'input_audio.commit' });
    const events = await client.through('voice.response.done');
    expect(typesOf(events)).toEqual([
      'voice.session.ready',
      'voice.input_audio.received',
      'voice.input_audio.received',
      'voice.input_transcript.delta',
      'voice.input_transcript.final',
      'voice.response.started',
      'voice.response.delta',
      'voice.response.done',
    ]);
    expect(events[1]).toMatchObject({ input_chunk_id: 1, byte_count: 6400, total_bytes: 6400, sample_rate: 16_000 });
    expect(events[2]).toMatchObject({ input_chunk_id: 1, total_bytes: 6400, duplicate: true });
    expect(events[4]).toMatchObject({ text: 'what is new' });
    expect(saidIn(events)).toBe('Nothing.');
    expect(events.map(({ event_id }) => event_id)).toEqual(events.map((_event, at) => at + 1));
    const appended = sentTo(script, 'input_audio_buffer.append');
    const bytes = appended.reduce((sum, { audio }) => sum + Buffer.from(String(audio), 'base64').length, 0);
    // 24 kHz instead of 16.
    expect(Math.abs(bytes - 9600)).toBeLessThanOrEqual(8);
  });

  it('answers bad input, and stays open', async () => {
    const { client } = await openAgent(start, { turns: [{ text: 'Hello.' }] });
    const bad: [string | Buffer, RegExp][] = [
      [Buffer.of(1, 2), /unsupported websocket frame/],
      ['{', /invalid JSON message/],
      ['[]', /message must be a JSON object/],
      ['{"type":"dance"}', /unsupported message type: dance/],
      ['{"type":"input_audio.append"}', /audio_base64/],
      ['{"type":"input_audio.append","audio_base64":"?"}', /audio_base64/],
      ['{"type":"input_audio.append","audio_base64":"AA=="}', /16-bit|odd|samples/],
      ['{"type":"input_audio.append","audio_base64":"AAA=","sample_rate":7999}', /sample_rate/],
      ['{"type":"response.create","text":" "}', /text/],
    ];
    for (const [data, message] of bad) {
      client.raw(data);
      expect((await client.next('voice.error')).message).toMatch(message);
    }
    client.send(say('Hi'));
    expect(saidIn(await client.through('voice.response.done'))).toBe('Hello.');
  });

  it('ends with 4401 when the session of the device is revoked', async () => {
    const { target, token, prefix, client } = await openAgent(start);
    await target.fetch(`/sessions/${prefix}`, { method: 'DELETE', headers: bearer(token) });
    expect(await client.closed()).toMatchObject({ code: 4401 });
  });

  it('ends with a provider that has waited for somebody to speak', async () => {
    const { client, script } = await openAgent(start);
    script.conversations[0]?.fail({ message: 'Session timed out due to inactivity' });
    expect(await client.closed()).toMatchObject({ code: 1000 });
    expect(ofType(client.events, 'voice.error')).toEqual([]);
  });

  it('lets the provider go when the client leaves voice mode, but not when its network fails', async () => {
    const { client, script, connect, resume } = await openAgent(start);
    const socket = script.conversations[0]?.socket;
    client.terminate();
    const next = await connect();
    next.send(resume({ last_event_id: 1 }));
    const events = await next.through('voice.replay.done');
    expect(typesOf(events)).toContain('voice.session.resumed');
    expect(socket?.isOver).toBe(false);
    next.close(1000, 'session ended');
    await expect.poll(() => socket?.isOver).toBe(true);
    expect(script.conversations).toHaveLength(1);
  });

  it.skipIf(runtime === 'edge')('ends with 1001 when the relay stops, and lets provider and run go', async () => {
    const { target, client, api, script } = await openAgent(start, { turns: [runTask('x')] });
    api.onRun(async (run) => {
      run.open();
      await run.event({ type: 'run.started', run_id: 'run-1' });
    });
    client.send(say('Do it'));
    await client.next('svc.run.started');
    await target.relay?.stop();
    expect(await client.closed()).toMatchObject({ code: 1001 });
    await expect.poll(() => script.conversations[0]?.socket.isOver).toBe(true);
    await whenAbandoned(api.requests.find(({ path }) => path.endsWith('/chat/stream')));
  });

  it.skipIf(runtime === 'edge')('leaves an event log of everything but secrets', async () => {
    const { session, token, client, script } = await openAgent(start, {
      turns: [{ text: 'Hello.', audio: [new Uint8Array(480)] }],
      body: { context_messages: [{ role: 'user', content: 'CONTEXT' }] },
    });
    client.send(say('Hi there'));
    await client.through('voice.response.done');
    client.send({ type: 'session.close' });
    await client.closed();
    const path = session.event_log_path;
    const read = async () =>
      (await readFile(path, 'utf8'))
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line));
    await expect.poll(async () => (await read()).at(-1).type).toBe('voice.realtime_agent.session.closed');
    const lines = await read();
    expect(lines[0]).toMatchObject({ type: 'voice.realtime_agent.session.created', unix_ms: expect.any(Number) });
    const logged = lines.filter(({ event_id }) => event_id !== undefined);
    expect(logged.map(({ type, event_id }) => [type, event_id])).toEqual(
      client.events.map(({ type, event_id }) => [type, event_id]),
    );
    expect(ofType(lines, 'voice.output_audio.delta')[0]).toMatchObject({ audio_base64: '<480 bytes>' });
    const [update] = sentTo<{ session: { instructions: string } }>(script, 'session.update');
    const instructions = update?.session.instructions.slice(0, 40) as string;
    const text = await readFile(path, 'utf8');
    const secrets = [token, session.resume_token, REALTIME_KEY, AGENT_KEY, instructions];
    for (const secret of [...secrets, 'CONTEXT']) expect(text).not.toContain(secret);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await readdir(dirname(path))).toHaveLength(1);
  });
});

describeMatrix('a turn (contract 06 §6)', (start) => {
  it('of text is answered with text and audio', async () => {
    const pcm = sinePcm(0.1, 24_000);
    const { client } = await openAgent(start, { turns: [{ text: 'Good day.', audio: [pcm] }] });
    client.send(say('Hello'));
    const events = await client.through('voice.response.done');
    expect(typesOf(events)).toEqual([
      'voice.input_transcript.final',
      'voice.response.started',
      'voice.response.delta',
      'voice.output_audio.delta',
      'voice.output_audio.done',
      'voice.response.done',
    ]);
    expect(events[0]).toMatchObject({ text: 'Hello', source: 'client_text' });
    const [audio] = ofType(events, 'voice.output_audio.delta');
    expect(audio).toMatchObject({
      audio_event_id: 1,
      byte_count: pcm.length,
      sample_rate: 24_000,
      channels: 1,
      sample_width: 2,
      peak_level: expect.any(Number),
      rms_level: expect.any(Number),
      response_id: 'resp-1',
    });
    expect(Buffer.from(String(audio?.audio_base64), 'base64')).toEqual(Buffer.from(pcm));
    expect(events.at(-1)).toMatchObject({ provider: 'openai_realtime', response_id: 'resp-1' });
  });

  it('with a task runs it on the agent, and delivers the answer once', async () => {
    const { client, api, script } = await openAgent(start, {
      turns: [runTask('meetings on Thursday'), { text: ANSWER, audio: [new Uint8Array(4800)] }],
    });
    api.onRun(async (run) => {
      run.open();
      await run.event({ type: 'run.started', run_id: 'run-1' });
      await run.event({ type: 'tool.started', tool_name: 'calendar', call_id: 't1', message: 'Looking' });
      await run.event({ type: 'tool.completed', tool_name: 'calendar', call_id: 't1', result: 'ok' });
      await run.event({ type: 'assistant.delta', delta: ANSWER });
      await run.event({ type: 'run.completed', run_id: 'run-1' });
      run.end();
    });
    client.send(say('What is on?'));
    const events = await client.through('voice.response.done');
    const types = typesOf(events);
    for (const type of ['svc.session.bound', 'svc.run.started', 'svc.tool.started', 'svc.run.completed']) {
      expect(types.filter((other) => other === type)).toEqual([type]);
    }
    expect(types.filter((type) => type.startsWith('voice.response.'))).toEqual([
      'voice.response.started',
      'voice.response.started',
      'voice.response.delta',
      'voice.response.done',
    ]);
    expect(events.find(({ type }) => type === 'svc.run.progress')).toMatchObject({
      status: 'starting',
      status_key: 'run:checking_svc',
      should_speak: false,
      run_id: null,
    });
    expect(ofType(events, 'svc.run.completed')).toMatchObject([{ run_id: 'run-1', session_id: 'created-1' }]);
    expect(saidIn(events)).toBe(ANSWER);
    expect(events.at(-1)).toMatchObject({ delivery: 'forced_summary' });
    expect(api.runs).toMatchObject([{ session: 'created-1', body: { message: 'meetings on Thursday' } }]);
    const created = sentTo<{ item: { call_id: string; output: string } }>(script, 'conversation.item.create');
    const output = created.at(-1)?.item;
    expect(output?.call_id).toBe('call-meetings on Thursday');
    expect(JSON.parse(output?.output ?? '')).toMatchObject({ ok: true, status: 'completed', text: ANSWER });
  });

  it('a task in the background is answered later, over another socket, while the phone was away', async () => {
    const { client, api, connect, resume } = await openAgent(start, {
      turns: [runTask('a long one', { mode: 'background' }), { text: 'I have begun.' }, { text: ANSWER }],
    });
    const finish = holdRuns(api, ANSWER);
    client.send(say('Do it'));
    const begun = await client.through('voice.response.done');
    expect(ofType(begun, 'svc.run.promoted')).toMatchObject([{ tier: 'durable', spoken_handoff: true }]);
    expect(saidIn(begun)).toBe('I have begun.');
    await expect.poll(() => api.runs).toHaveLength(1);
    const last = begun.at(-1)?.event_id;
    client.terminate();
    finish();
    const next = await connect();
    next.send(resume({ last_event_id: last }));
    // The provider may have answered before the relay knew that the phone was gone: then the answer is in the replay.
    const { events } = next;
    await expect.poll(() => ofType(events, 'voice.response.done')).toHaveLength(1);
    await expect.poll(() => typesOf(events)).toContain('voice.replay.done');
    expect(typesOf(events)).toContain('voice.session.detached');
    expect(ofType(events, 'svc.run.background_completed')).toMatchObject([{ ok: true }]);
    expect(ofType(events, 'voice.response.delta').map(({ delta }) => delta)).toEqual([ANSWER]);
    expect(ofType(events, 'voice.response.done')).toMatchObject([{ delivery: 'forced_summary' }]);
  });

  it('a run goes on while the phone changes its network', async () => {
    const { client, api, connect, resume } = await openAgent(start, { turns: [runTask('x'), { text: ANSWER }] });
    const finish = holdRuns(api, ANSWER);
    client.send(say('Do it'));
    const started = await client.next('svc.run.started');
    const next = await connect();
    next.send(resume({ last_event_id: started.event_id }));
    await next.through('voice.replay.done');
    expect(await client.closed()).toMatchObject({ code: 4000 });
    finish();
    const events = await next.through('voice.response.done');
    expect(ofType(events, 'svc.run.completed')).toHaveLength(1);
    expect(saidIn(events)).toBe(ANSWER);
    expect(api.runs).toHaveLength(1);
  });

  it('cancel stops the run at once, and nothing of it is spoken', async () => {
    const { client, api } = await openAgent(start, { turns: [runTask('x'), { text: 'Anything else?' }] });
    api.onRun(async (run) => {
      run.open();
      await run.event({ type: 'run.started', run_id: 'run-1' });
    });
    client.send(say('Do it'));
    await client.next('svc.run.started');
    client.send({ type: 'response.cancel' });
    expect(await client.next('svc.run.cancelled')).toMatchObject({ run_id: 'run-1' });
    // The response ends last: with it the client's turn is over.
    expect(await client.next('voice.response.done')).toMatchObject({ cancelled: true });
    expect(ofType(client.events, 'voice.response.done')).toHaveLength(1);
    await whenAbandoned(api.requests.find(({ path }) => path.endsWith('/chat/stream')));
    client.send(say('Hello'));
    expect(saidIn(await client.through('voice.response.done'))).toBe('Anything else?');
  });

  it('asks for a confirmation, and passes the answer on', async () => {
    const { client, api } = await openAgent(start, {
      capabilities: { features: { run_approval: true } },
      turns: [runTask('delete it'), { text: ANSWER }],
    });
    const question = { type: 'confirmation.requested', confirmation_id: 'c1', message: 'Really?' };
    const finish = holdRuns(api, ANSWER, [question]);
    client.send(say('Delete it'));
    expect(await client.next('svc.confirmation.requested')).toMatchObject({
      confirmation_id: 'c1',
      message: 'Really?',
    });
    client.send({ type: 'svc.confirm', confirmation_id: 'c1', answer: 'allow_once' });
    const forwarded = await client.next('svc.confirmation.forwarded');
    expect(forwarded).toMatchObject({ confirmation_id: 'c1', answer: 'allow_once' });
    await expect.poll(() => api.posts).toHaveLength(1);
    expect(api.posts[0]).toMatchObject({ path: '/v1/runs/run-1/approval', body: { answer: 'allow_once' } });
    finish();
    expect(saidIn(await client.through('voice.response.done'))).toBe(ANSWER);
  });

  it('a provider that goes in the middle of a run is dialled again, and the run goes on (06 §6.9)', async () => {
    const { client, api, script } = await openAgent(start, { turns: [runTask('x'), { text: ANSWER }] });
    const finish = holdRuns(api, ANSWER);
    client.send(say('Do it'));
    await client.next('svc.run.started');
    script.conversations[0]?.reset();
    expect(await client.next('voice.provider.reconnecting')).toMatchObject({ reason: 'provider_disconnected' });
    expect((await client.next('voice.provider.reconnected')).gap_ms).toBeLessThan(20_000);
    finish();
    expect(saidIn(await client.through('voice.response.done'))).toBe(ANSWER);
  });

  it('ends with the sums of what the conversation has used', async () => {
    const usage = (audio: number) => ({ input_tokens: 9, input_token_details: { audio_tokens: audio } });
    const { client } = await openAgent(start, {
      turns: [
        { text: 'One.', usage: usage(3) },
        { text: 'Two.', usage: usage(4) },
      ],
    });
    for (const text of ['And one?', 'And two?']) {
      client.send(say(text));
      await client.through('voice.response.done');
    }
    expect(ofType(client.events, 'voice.response.done').map(({ usage: sums }) => sums)).toMatchObject([
      { input_tokens: 9, input_audio_tokens: 3, output_audio_tokens: 0 },
      { input_tokens: 18, input_audio_tokens: 7, output_audio_tokens: 0 },
    ]);
  });

  it('an API server that refuses the key is named', async () => {
    const { client } = await openAgent(start, { env: { API_SERVER_KEY: 'another' }, turns: [runTask('x')] });
    client.send(say('Do it'));
    const error = await client.next('voice.error');
    expect(error).toMatchObject({ error_code: 'svc_broker_auth_failed' });
    expect(error.message).toMatch(/svc broker auth failed.*relay-side svc credential/);
    expect(error.message).not.toContain('another');
  });

  it('an answer that nobody has heard when the session ends becomes a message to the phone', async () => {
    const { target, token, prefix, client, api, script } = await openAgent(start, {
      turns: [runTask('a long one', { mode: 'background' }), { text: 'I have begun.' }, { isOpen: true }],
    });
    api.onRun(async (run) => {
      run.open();
      await run.event({ type: 'run.started', run_id: 'run-1' });
      await run.event({ type: 'assistant.delta', delta: `${ANSWER} ${'x'.repeat(300)}` });
      run.end();
    });
    client.send(say('Do it'));
    await client.next('svc.run.background_completed');
    await expect.poll(() => sentTo(script, 'response.create')).toHaveLength(3);
    await target.fetch(`/sessions/${prefix}`, { method: 'DELETE', headers: bearer(token) });
    expect(await client.closed()).toMatchObject({ code: 4401 });
    const { client: phone } = await pair(target);
    phone.send('proactive', 'proactive.subscribe', {});
    const { payload: message } = await phone.next({ channel: 'proactive', type: 'phone.message' });
    expect(message).toMatchObject({
      title: 'Background task finished',
      surfacing: 'notification',
      metadata: { source: 'realtime_agent', run_id: 'run-1', chat_session_id: 'created-1' },
    });
    expect(message.text).toMatch(new RegExp(`^${ANSWER} x+$`));
    expect(message.text).toHaveLength(280);
  });
});

describeMatrix('the stub (contract 06 §9)', (start) => {
  it('runs every text on the agent, and answers with its words and a tone', async () => {
    const { client, api, ready } = await openAgent(start, { body: { ...STUB, sample_rate: 16_000 } });
    expect(ready).toMatchObject({ provider: 'stub', sample_rate: 16_000 });
    api.onRun(answering('All is well.'));
    client.send(say('How are you?'));
    const events = await client.through('voice.response.done');
    const types = typesOf(events);
    expect(types.slice(0, 2)).toEqual(['voice.input_transcript.final', 'voice.response.started']);
    expect(events[0]).toMatchObject({ text: 'How are you?', sample_rate: 16_000, input_audio_bytes: 0 });
    expect(ofType(events, 'voice.response.delta').map(({ delta }) => delta)).toEqual(['All is well.']);
    const audio = ofType(events, 'voice.output_audio.delta');
    expect([8, 9]).toContain(audio.length);
    // A quarter of a second.
    expect(audio.reduce((sum, { byte_count }) => sum + Number(byte_count), 0)).toBe(8000);
    expect(types.slice(-2)).toEqual(['voice.output_audio.done', 'voice.response.done']);
    expect(events.at(-1)).toMatchObject({
      provider: 'stub',
      model: 'local-tone',
      voice: 'sine',
      final_text: 'All is well.',
    });
    expect(api.runs).toMatchObject([{ body: { message: 'How are you?' } }]);
  });

  it('takes the text of an utterance from the client', async () => {
    const { client, api } = await openAgent(start, { body: STUB });
    api.onRun(answering('Yes.'));
    client.send({ type: 'input_audio.append', audio_base64: 'AAAAAA==', sample_rate: 16_000 });
    client.send({ type: 'input_audio.commit' });
    expect((await client.next('voice.error')).message).toMatch(/client transcript text is required/);
    client.send({ type: 'input_audio.append', audio_base64: 'AAAAAA==', sample_rate: 16_000 });
    client.send({ type: 'input_audio.commit', prompt: 'Is it on?' });
    expect(await client.next('voice.input_transcript.final')).toMatchObject({ text: 'Is it on?' });
    expect(saidIn(await client.through('voice.response.done'))).toBe('Yes.');
  });

  it('does one thing at a time, and can be cancelled', async () => {
    const { client, api } = await openAgent(start, { body: STUB });
    api.onRun(async (run) => {
      run.open();
      await run.event({ type: 'run.started', run_id: 'run-1' });
    });
    client.send(say('One'));
    await client.next('svc.run.started');
    client.send(say('Two'));
    expect((await client.next('voice.error')).message).toBe('response already running');
    client.send({ type: 'response.cancel' });
    const events = await client.through('voice.response.done');
    expect(ofType(events, 'svc.run.cancelled')).toMatchObject([{ run_id: 'run-1' }]);
    expect(events.at(-1)).toMatchObject({ cancelled: true });
    api.onRun(answering('Here again.'));
    client.send(say('Three'));
    expect(saidIn(await client.through('voice.response.done'))).toBe('Here again.');
  });

  it('an answer without words is an error', async () => {
    const { client } = await openAgent(start, { body: STUB });
    client.send(say('Anything?'));
    expect((await client.next('voice.error')).message).toMatch(/without an answer/);
  });

  it('goes on while the phone is away', async () => {
    const { client, api, connect, resume } = await openAgent(start, { body: STUB });
    const finish = holdRuns(api, 'Done.');
    client.send(say('Go'));
    const { event_id } = await client.next('svc.run.started');
    client.terminate();
    finish();
    const next = await connect();
    next.send(resume({ last_event_id: event_id }));
    expect(saidIn(await next.through('voice.response.done'))).toBe('Done.');
  });
});

describeMatrix('a phone that keeps losing its network (contract 06 §4.1)', (start) => {
  it('hears every sample once', async () => {
    const { script, connect, resume, ...stage } = await openAgent(start, {
      turns: [{ text: 'Listen.', isOpen: true }],
    });
    let { client } = stage;
    const pcm = Array.from({ length: 40 }, (_, at) => new Uint8Array(960).fill(at + 1));
    const heard: Buffer[] = [];
    let [lastEvent, lastAudio, taken] = [0, 0, 0];
    const take = () => {
      for (const { type, event_id, audio_event_id, audio_base64 } of client.events.slice(taken)) {
        if (/^voice\.(session|replay)\./.test(type)) continue;
        lastEvent = Number(event_id);
        if (audio_event_id === undefined) continue;
        expect(audio_event_id).toBe(++lastAudio);
        heard.push(Buffer.from(String(audio_base64), 'base64'));
      }
      taken = client.events.length;
    };
    client.send(say('Read it to me'));
    await client.next('voice.response.delta');
    for (const [at, chunk] of pcm.entries()) {
      script.conversations[0]?.play('resp-1', chunk);
      if (at % 7 !== 3) continue;
      // What is still on its way to this socket is lost with it.
      take();
      client.terminate();
      client = await connect();
      taken = 0;
      client.send(resume({ last_event_id: lastEvent, last_audio_event_id: lastAudio }));
    }
    script.conversations[0]?.finish('resp-1');
    await client.next('voice.response.done');
    take();
    expect(Buffer.concat(heard).equals(Buffer.concat(pcm))).toBe(true);
    expect(script.conversations).toHaveLength(1);
  });
});
