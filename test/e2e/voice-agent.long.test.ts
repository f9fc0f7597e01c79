import { readdir, readFile, readlink } from 'node:fs/promises';
import { expect, it, onTestFinished } from 'vitest';
import { begin } from '../support/companion-cli.ts';
import type { Exchange } from '../support/fake-api-server.ts';
import { TIMEOUT } from '../support/limits.ts';
import { AGENT_KEY, createAgent, requestAgent, runTask } from '../support/voice/agent.ts';
import { startAgentApi } from '../support/voice/agent-api.ts';
import { connectVoice, refusedVoice, type VoiceEvent } from '../support/voice/client.ts';
import { startVoiceProcess } from '../support/voice/process.ts';
import { type ScriptedTurn, scriptRealtime } from '../support/voice/realtime-provider.ts';

const STUB = { provider: 'stub' };
const ANSWER = 'There are 17 meetings on Thursday, the longest with Marguerite about the budget.';
/** Milliseconds that the phone is off while the agent works, several times as long as a session without work lasts. */
const PHONE_OFF = Number(process.env.SVC_TEST_PHONE_OFF_MS ?? 1500);
const RESUME_TTL = PHONE_OFF / 4;

/** The built relay between a fake OpenAI and a fake API server of the agent. */
async function started({ turns = [], env = {} }: { turns?: ScriptedTurn[]; env?: Record<string, string> } = {}) {
  const api = await startAgentApi({ key: AGENT_KEY });
  const stage = await startVoiceProcess({
    env: {
      RELAY_WEBAPI_URL: api.url,
      API_SERVER_KEY: AGENT_KEY,
      RELAY_REALTIME_VOICE_PROVIDER: 'openai_realtime',
      RELAY_REALTIME_VOICE_MODEL: 'gpt-realtime-2.1',
      RELAY_REALTIME_VOICE_VOICE: 'marin',
      RELAY_VOICE_RUN_LEAD_MS: '1',
      RELAY_VOICE_PLAYBACK_DRAIN_MS: '50',
      RELAY_VOICE_INPUT_QUIET_MS: '1',
      ...env,
    },
  });
  const script = scriptRealtime(stage.provider, { turns });
  const open = async (path: string, token: string) => {
    const client = await connectVoice(stage.target, path, token);
    onTestFinished(() => client.terminate());
    return client;
  };
  /** Sockets and event logs that the relay has open. */
  const sockets = async () => {
    const folder = `/proc/${stage.relay.child.pid}/fd`;
    const links = await Promise.all((await readdir(folder)).map((fd) => readlink(`${folder}/${fd}`).catch(() => '')));
    return links.filter((link) => link.startsWith('socket:') || link.endsWith('.jsonl')).length;
  };
  return { ...stage, api, script, open, sockets };
}

/** A run of the agent that answers once `until` is over. */
const answering =
  (text: string, until: Promise<unknown> = Promise.resolve()) =>
  async (run: Exchange): Promise<void> => {
    run.open();
    await run.event({ type: 'run.started', run_id: 'run-1' });
    await until;
    await run.event({ type: 'assistant.delta', delta: text });
    await run.event({ type: 'run.completed', run_id: 'run-1' });
    run.end();
  };

const never = new Promise(() => {});
const ofType = (events: readonly VoiceEvent[], type: string) => events.filter((event) => event.type === type);

it('conversations from a terminal leave no session, socket or descriptor behind', async () => {
  const { api, relay, script, sessions, sockets, descriptors } = await started({ turns: [{ text: 'Good day.' }] });
  api.onRun(async (run) => answering(`Answer ${api.runs.length}.`)(run));
  const talk = (words: string[], input: string) =>
    begin(['voice', 'talk', ...words], { home: relay.home, env: { RELAY_PORT: String(relay.port) }, input }).ended;
  const stub = await talk(['--provider', 'stub'], 'One?\nTwo?\n');
  expect([stub.code, stub.stdout]).toEqual([0, 'You: One?\nAgent: Answer 1.\nYou: Two?\nAgent: Answer 2.\n']);
  const [openSockets, openDescriptors] = [await sockets(), await descriptors()];

  const all = await Promise.all(['One?', 'Two?', 'Three?'].map((text) => talk(['--provider', 'stub'], text)));
  expect(all.map(({ code, stdout }) => [code, stdout.split('\n').length])).toEqual(all.map(() => [0, 3]));
  const spoken = await talk([], 'Hello');
  expect([spoken.code, spoken.stdout]).toEqual([0, 'You: Hello\nAgent: Good day.\n']);
  expect(await sessions()).toEqual([]);
  await expect.poll(() => script.conversations[0]?.socket.isOver).toBe(true);
  await expect.poll(sockets, { timeout: TIMEOUT }).toBeLessThanOrEqual(openSockets);
  await expect.poll(descriptors, { timeout: TIMEOUT }).toBeLessThanOrEqual(openDescriptors);
});

it(
  'a long run in the background is delivered once when the phone, long off, is back',
  async () => {
    const { api, pair, target, open, script, relay, sockets } = await started({
      turns: [runTask('a long one', { mode: 'background' }), { text: 'I have begun.' }, { text: ANSWER }],
      env: { RELAY_VOICE_RESUME_TTL_MS: String(RESUME_TTL) },
    });
    const before = await sockets();
    const token = await pair();
    let finish = () => {};
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    api.onRun(answering(ANSWER, finished));
    const session = await createAgent(target, token);
    const client = await open(session.websocket_path, token);
    client.send({ type: 'session.start' });
    client.send({ type: 'response.create', text: 'Do it' });
    const { event_id } = await client.next('voice.response.done');
    client.terminate();
    await new Promise((resolve) => setTimeout(resolve, PHONE_OFF));
    finish();
    const log = () => readFile(session.event_log_path, 'utf8');
    await expect.poll(log, { timeout: TIMEOUT }).toContain('"voice.realtime_agent.result_deferred"');

    const back = await open(session.websocket_path, token);
    const resume = { type: 'session.resume', resume_token: session.resume_token };
    back.send({ ...resume, last_event_id: event_id });
    await back.next('voice.session.resumed');
    const done = await back.next('voice.response.done');
    back.send({ type: 'client.ack', event_id: done.event_id });
    expect(ofType(back.events, 'svc.run.background_completed')).toMatchObject([{ ok: true }]);
    expect(ofType(back.events, 'voice.response.delta').map(({ delta }) => delta)).toEqual([ANSWER]);

    // On another network: nothing of it comes a second time.
    const again = await open(session.websocket_path, token);
    again.send({ ...resume, last_event_id: done.event_id });
    expect(await back.closed()).toMatchObject({ code: 4000 });
    again.send({ type: 'response.create', text: 'Anything else?' });
    await again.next('voice.response.done');
    expect(ofType(again.events, 'voice.response.delta').map(({ delta }) => delta)).toEqual(['Okay.']);
    expect(api.runs).toHaveLength(1);

    again.send({ type: 'session.close' });
    expect(await again.closed()).toMatchObject({ code: 1000 });
    await expect.poll(() => script.conversations.map(({ socket }) => socket.isOver)).toEqual([true]);
    await expect.poll(sockets, { timeout: TIMEOUT }).toBeLessThanOrEqual(before);
    // What was delivered is no message to the phone as well.
    const messages = await relay.ask('/phone/outbound', { headers: { 'x-svc-operator': '1' } });
    expect(messages.json.messages).toEqual([]);
  },
  PHONE_OFF + 4 * TIMEOUT,
);

it('a relay that is killed says to everyone that the conversation is lost', async () => {
  const { api, pair, relay, target, open, script, sessions } = await started({
    turns: [runTask('a long one', { mode: 'background' }), { text: 'I have begun.' }],
  });
  api.onRun(answering('never', never));
  const token = await pair();
  const session = await createAgent(target, token);
  const client = await open(session.websocket_path, token);
  client.send({ type: 'session.start' });
  client.send({ type: 'response.create', text: 'Do it' });
  await client.next('voice.response.done');
  const env = { RELAY_PORT: String(relay.port) };
  const talking = begin(['voice', 'talk', '--provider', 'stub'], { home: relay.home, env, input: 'Still there?' });
  await expect.poll(() => api.runs).toHaveLength(2);

  await relay.restart();
  expect(await client.closed()).toMatchObject({ code: 1006 });
  expect(await refusedVoice(target, session.websocket_path, token)).toMatchObject({ status: 404 });
  const { code, stdout, stderr } = await talking.ended;
  expect([code, stdout]).toEqual([1, 'You: Still there?\n']);
  expect(stderr).toMatch(/The connection was lost/);
  expect(stderr).toMatch(/error: the relay was restarted, or has ended the session: what was under way in it is lost/);
  // Nobody waits for an answer that nobody would take: run and provider are let go of.
  const streams = api.requests.filter(({ path }) => path.endsWith('/chat/stream'));
  await expect.poll(() => streams.map(({ abandoned }) => abandoned)).toEqual([true, true]);
  expect(script.conversations.map(({ socket }) => socket.isOver)).toEqual([true]);

  // The phone is still paired; the terminal has left nothing.
  expect((await requestAgent(target, token, STUB)).status).toBe(200);
  expect((await sessions()).map(({ device_name }: { device_name: string }) => device_name)).not.toContain('svc voice');
  api.onRun(answering('Here again.'));
  const next = await begin(['voice', 'talk', '--provider', 'stub'], { home: relay.home, env, input: 'And now?' }).ended;
  expect([next.code, next.stdout]).toEqual([0, 'You: And now?\nAgent: Here again.\n']);
});
