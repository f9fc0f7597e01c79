import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { startBuiltTarget } from '../support/built-relay.ts';
import { begin, run } from '../support/companion-cli.ts';
import { type Exchange, whenAbandoned } from '../support/fake-api-server.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { temporaryDirectory } from '../support/temp.ts';
import { AGENT_KEY, REALTIME_KEY } from '../support/voice/agent.ts';
import { type AgentApiOptions, startAgentApi } from '../support/voice/agent-api.ts';
import { sinePcm, wavOf } from '../support/voice/audio.ts';
import { startProvider } from '../support/voice/provider.ts';
import { type ScriptedTurn, scriptRealtime } from '../support/voice/realtime-provider.ts';
import { stubPcm } from '../support/voice/stub.ts';

interface Setup extends AgentApiOptions {
  turns?: ScriptedTurn[];
  transcripts?: string[];
  env?: Record<string, string>;
}

/** A relay in a process of its own, between a fake OpenAI and a fake API server of the agent. */
async function started({ turns, transcripts, env = {}, ...options }: Setup = {}) {
  const provider = await startProvider();
  const script = scriptRealtime(provider, { turns, transcripts });
  const api = await startAgentApi({ key: AGENT_KEY, ...options });
  const relay = await startBuiltTarget({
    env: {
      RELAY_WEBAPI_URL: api.url,
      API_SERVER_KEY: AGENT_KEY,
      RELAY_VOICE_RUN_LEAD_MS: '1',
      RELAY_VOICE_PLAYBACK_DRAIN_MS: '50',
      RELAY_REALTIME_VOICE_PROVIDER: 'openai_realtime',
      RELAY_REALTIME_VOICE_MODEL: 'gpt-realtime-2.1',
      RELAY_REALTIME_VOICE_VOICE: 'marin',
      ...env,
    },
    hostEnv: () => ({
      OPENAI_REALTIME_API_KEY: REALTIME_KEY,
      OPENAI_REALTIME_URL: provider.url.replace('http', 'ws'),
      ...env,
    }),
  });
  onTestFinished(() => relay.stop());
  const sessions = async (): Promise<unknown[]> =>
    (await (await relay.operator('/sessions', { headers: { 'x-svc-operator': '1' } })).json()).sessions;
  const settings = { env: { RELAY_PORT: String(relay.port) } };
  return {
    script,
    api,
    relay,
    sessions,
    settings,
    folder: await temporaryDirectory(),
    talk: (words: string[] = [], input = '') => run(['voice', 'talk', ...words], { ...settings, input }),
  };
}

const STUB = ['--provider', 'stub'];

/** Answers a run, once `until` is over. */
const answering =
  (text: string, until: Promise<void> = Promise.resolve()) =>
  async (exchange: Exchange): Promise<void> => {
    exchange.open();
    await exchange.event({ type: 'run.started', run_id: 'run-1' });
    await until;
    await exchange.event({ type: 'assistant.delta', delta: text });
    exchange.end();
  };

function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open: () => open(), opened };
}

it('talks to the stub in lines of stdin, one turn after the other, and leaves nothing behind', async () => {
  const { api, talk, sessions, folder } = await started();
  api.onRun(async (exchange) => answering(`Answer ${api.runs.length}.`)(exchange));
  const out = join(folder, 'answers.wav');
  const { code, stdout } = await talk([...STUB, '--rate', '16000', '--out', out], 'One?\n\nTwo?');
  expect([code, stdout]).toEqual([0, 'You: One?\nAgent: Answer 1.\nYou: Two?\nAgent: Answer 2.\n']);
  expect(api.runs.map(({ session, body }) => [session, body.message])).toEqual([
    ['created-1', 'One?'],
    ['created-1', 'Two?'],
  ]);
  const tones = await Promise.all(['Answer 1.', 'Answer 2.'].map((text) => stubPcm({ text, sampleRate: 16_000 })));
  expect(await readFile(out)).toEqual(Buffer.from(wavOf(Buffer.concat(tones), 16_000)));
  expect(await sessions()).toEqual([]);
});

it('asks for confirmations: the next line is the answer', async () => {
  const { api, talk } = await started({ capabilities: { features: { run_approval: true } } });
  api.onRun(async (exchange) => {
    exchange.open();
    await exchange.event({ type: 'run.started', run_id: 'run-1' });
    await exchange.event({ type: 'confirmation.requested', confirmation_id: 'c1', message: 'Really\u001b[31m?' });
    await expect.poll(() => api.posts).toHaveLength(1);
    await exchange.event({ type: 'assistant.delta', delta: 'Deleted.' });
    exchange.end();
  });
  const { code, stdout, stderr } = await talk(STUB, 'Delete it\nperhaps\ny\n');
  expect([code, stdout]).toEqual([0, 'You: Delete it\nAgent: Deleted.\n']);
  expect(stderr).toContain('The agent asks: Really[31m?\nAllow it? [y/n] Please answer y or n: ');
  expect(api.posts).toMatchObject([{ path: '/v1/runs/run-1/approval', body: { answer: 'allow_once' } }]);
});

it('a person types whenever they want: cancels, repeats, and quits', async () => {
  const { api, settings } = await started();
  api.onRun(answering('never', new Promise(() => {})));
  const talking = begin(['voice', 'talk', ...STUB], { ...settings, tty: true });
  await talking.prints(/Type what you want to say\. \/cancel stops the agent/);
  talking.type('Do it\n');
  await expect.poll(() => api.runs).toHaveLength(1);
  talking.type('/cancel\n');
  await talking.prints(/The task was cancelled\./);
  talking.type('/again\n');
  await talking.prints(/No task in the background has finished yet\./);
  talking.type('/quit\n');
  expect(await talking.ended).toMatchObject({ code: 0, stdout: '' });
});

it('on a terminal, ends its lines, and Ctrl-C leaves no half of one', async () => {
  const { api, settings, sessions } = await started({ capabilities: { features: { run_approval: true } } });
  api.onRun(async (exchange) => {
    exchange.open();
    await exchange.event({ type: 'run.started', run_id: 'run-1' });
    await exchange.event({ type: 'confirmation.requested', confirmation_id: 'c1', message: 'Really?' });
  });
  for (const end of ['Ctrl-C', 'Ctrl-D'] as const) {
    const talking = begin(['voice', 'talk', ...STUB], { ...settings, tty: true, columns: 80 });
    await talking.prints(/\[KType what you want to say\. [^\n]{1,53}\n\S[^\n]*ends the conversation\.\n/);
    talking.type('Do it\n');
    await talking.prints(/The agent asks: Really\?\nAllow it\? \[y\/n\] $/);
    if (end === 'Ctrl-C') talking.stop();
    else talking.endInput();
    const { code, stdout, stderr } = await talking.ended;
    expect([code, stdout]).toEqual([0, '']);
    const question = 'Allow it? [y/n] ';
    const after = stderr.slice(stderr.indexOf(question) + question.length);
    if (end === 'Ctrl-C') expect(after).toMatch(/^\r.\[K$/);
    else expect(after).toMatch(/^\n/);
    expect(stderr).toMatch(/(?:\n|\r.\[K)$/);
  }
  expect(await sessions()).toEqual([]);
});

it('prints each event as a line of JSON, without audio and the resume token', async () => {
  const { api, talk } = await started();
  api.onRun(answering('Yes.'));
  const { code, stdout, stderr } = await talk([...STUB, '--json'], 'Is it on?');
  expect([code, stderr]).toEqual([0, '']);
  const events = stdout
    .trimEnd()
    .split('\n')
    .map((text) => JSON.parse(text));
  expect(events[0]).toMatchObject({ type: 'session', provider: 'stub' });
  expect(events[1]).toMatchObject({ type: 'voice.session.ready' });
  expect(events.find(({ type }) => type === 'voice.output_audio.delta').audio_base64).toMatch(/^<\d+ bytes>$/);
  expect(events.at(-1)).toMatchObject({ type: 'closed', code: 1000 });
  expect(stdout).not.toContain('resume_token');
});

it('takes the session up again whenever the connection is lost', async () => {
  const { api, relay } = await started();
  const { open, opened } = gate();
  api.onRun(answering('Here I am.', opened));
  const proxy = await startFlakyProxy({ port: relay.port, seed: 1, faults: ['none'] });
  onTestFinished(() => proxy.close());
  const talking = begin(['voice', 'talk', ...STUB], { env: { RELAY_PORT: String(proxy.port) }, input: 'Still there?' });
  await expect.poll(() => api.runs).toHaveLength(1);
  for (let losses = 1; losses <= 2; losses++) {
    proxy.strike('reset');
    await expect.poll(() => talking.stderr.split('Connected again.').length).toBe(losses + 1);
  }
  open();
  expect(await talking.ended).toMatchObject({ code: 0, stdout: 'You: Still there?\nAgent: Here I am.\n' });
  expect(api.runs).toHaveLength(1);
});

it('sends a recording as one utterance, and waits for the task in the background', async () => {
  const { api, script, talk, folder } = await started({
    transcripts: ['what is on'],
    turns: [
      { calls: [{ callId: 'c1', name: 'svc_run_task', args: { text: 'look it up', mode: 'background' } }] },
      { text: 'I have begun.' },
      { text: 'Three meetings and a dentist.' },
    ],
    env: { RELAY_VOICE_INPUT_QUIET_MS: '1' },
  });
  const { open, opened } = gate();
  api.onRun(answering('Three meetings and a dentist.', opened));
  const path = join(folder, 'question.wav');
  await writeFile(path, wavOf(sinePcm(0.5, 24_000), 24_000));
  const talking = talk(['--in', path]);
  await expect.poll(() => api.runs).toHaveLength(1);
  open();
  const { code, stdout } = await talking;
  expect([code, stdout]).toEqual([0, 'You: what is on\nAgent: I have begun.\nAgent: Three meetings and a dentist.\n']);
  const appended = script.conversations[0]?.sent('input_audio_buffer.append') ?? [];
  const bytes = appended.reduce((sum, { audio }) => sum + Buffer.from(String(audio), 'base64').length, 0);
  expect(bytes).toBe(24_000);
});

it('records with arecord between two times Enter, and plays the answer', async () => {
  const { settings, folder, script } = await started({
    transcripts: ['hello'],
    turns: [{ text: 'Hi.', audio: [new Uint8Array(4800)] }],
  });
  const path = await mkdtemp(join(tmpdir(), 'svc-talk-'));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  const program = async (name: string, body: string) => {
    await writeFile(join(path, name), `#!/bin/sh\n${body}\n`);
    await chmod(join(path, name), 0o755);
  };
  await program('arecord', `echo "$@" > '${folder}/args'; /usr/bin/head -c 12801 /dev/zero; exec /bin/sleep 60`);
  await program('aplay', `exec /bin/cat > '${folder}/heard'`);
  const env = { ...settings.env, PATH: path };
  const talking = begin(['voice', 'talk', '--mic'], { env, tty: true });
  await talking.prints(/Press Enter to speak/);
  talking.type('\n');
  await talking.prints(/Recording\. Press Enter to send it\./);
  await expect.poll(() => script.conversations[0]?.sent('input_audio_buffer.append').length).toBeGreaterThanOrEqual(2);
  talking.type('\n');
  await talking.prints(/You: hello\nAgent: Hi\.\n/);
  talking.type('/quit\n');
  expect((await talking.ended).code).toBe(0);
  expect(await readFile(join(folder, 'args'), 'utf8')).toBe('-q -t raw -f S16_LE -c 1 -r 16000 -\n');
  expect((await readFile(join(folder, 'heard'))).length).toBe(4800);
});

it('says at once that arecord has failed, while an utterance is being recorded', async () => {
  const { settings, sessions } = await started();
  const path = await temporaryDirectory();
  await writeFile(join(path, 'arecord'), "#!/bin/sh\necho 'no soundcards found' >&2\nexit 1\n", { mode: 0o755 });
  await writeFile(join(path, 'aplay'), '#!/bin/sh\nexec /bin/cat\n', { mode: 0o755 });
  const talking = begin(['voice', 'talk', '--mic'], { env: { ...settings.env, PATH: path }, tty: true });
  await talking.prints(/Press Enter to speak/);
  talking.type('\n');
  const { code, stderr } = await talking.ended;
  expect([code, stderr]).toEqual([1, expect.stringMatching(/error: arecord failed: no soundcards found/)]);
  expect(await sessions()).toEqual([]);
});

it.each([
  [['--mic'], 2, /--mic needs a terminal/],
  [['--mic', '--in', 'x.wav'], 2, /exclude each other/],
  [['--rate', '7'], 2, /--rate/],
  [['--in', 'absent.wav'], 1, /absent\.wav cannot be read/],
  [['--out', '/nowhere/x.wav'], 1, /cannot write to the folder/],
  [['--provider', 'openai_tts'], 1, /is not a native realtime-agent provider/],
] as const)('refuses %j', async (words, status, message) => {
  const { talk, sessions } = await started();
  const { code, stdout, stderr } = await talk([...words], 'Hello');
  expect([code, stdout]).toEqual([status, '']);
  expect(stderr).toMatch(message);
  expect(await sessions()).toEqual([]);
});

it('says what to do when the agent refuses the key, or does not answer', async () => {
  const { api, talk } = await started({ key: 'another' });
  const refused = await talk(STUB, 'Hello');
  expect([refused.code, refused.stdout]).toEqual([1, 'You: Hello\n']);
  expect(refused.stderr).toMatch(/error: svc broker auth failed.*\n.*API_SERVER_KEY/);
  expect(refused.stderr).not.toContain(AGENT_KEY);
  expect(api.runs).toEqual([]);
});

it('a signal stops it: exit 1, and the session is gone', async () => {
  const { api, settings, sessions } = await started();
  api.onRun(answering('never', new Promise(() => {})));
  const talking = begin(['voice', 'talk', ...STUB], { ...settings, input: 'Hello' });
  await expect.poll(() => api.runs).toHaveLength(1);
  talking.stop();
  expect(await talking.ended).toMatchObject({ code: 1, stdout: 'You: Hello\n' });
  expect(await sessions()).toEqual([]);
  await whenAbandoned(api.requests.find(({ path }) => path.endsWith('/chat/stream')));
});
