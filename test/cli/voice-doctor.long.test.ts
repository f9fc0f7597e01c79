import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { startBuiltTarget } from '../support/built-relay.ts';
import { closedPort } from '../support/closed-port.ts';
import { run } from '../support/companion-cli.ts';
import { startOwnServer } from '../support/voice/openai-server.ts';

/** A relay with this configuration, and `svc voice` on the same machine. */
async function started(config: object, env: Record<string, string> = {}) {
  const relay = await startBuiltTarget({ env: { RELAY_VOICE_OUTPUT_PROVIDER: 'local', ...env } });
  onTestFinished(() => relay.stop());
  const file = join(relay.agentHome, 'config.yaml');
  await writeFile(file, JSON.stringify(config));
  const setting = {
    home: relay.agentHome,
    env: { HOME: relay.agentHome, RELAY_PORT: String(relay.port), RELAY_VOICE_OUTPUT_PROVIDER: 'local', ...env },
  };
  return { file, relay, voice: (...words: string[]) => run(['voice', ...words], setting) };
}

const both = (local: object) => ({ tts: { provider: 'local', local }, stt: { provider: 'local', local } });

it('05 §18: shows base, model, voice and latency of each path, and asks the servers', async () => {
  const own = await startOwnServer({ models: ['kokoro', 'whisper-1'], voices: ['af_heart'] });
  const { voice } = await started({
    tts: { provider: 'local', local: { base_url: own.url, model: 'kokoro', voice: 'af_heart' } },
    stt: { provider: 'local', local: { base_url: own.url } },
  });
  const { code, stdout } = await voice('doctor');
  expect(stdout).toContain(`[OK] speech: local, model kokoro, voice af_heart, at ${own.url}, settings of the agent`);
  expect(stdout).toContain(`[OK] transcription: local, model whisper-1, at ${own.url}, settings of`);
  expect(stdout).toMatch(/\[OK\] voice output: local_tts, model kokoro, voice af_heart, at http:\S+, settings of/);
  expect(stdout).toContain(`[OK] speech server: ${own.url} answers`);
  expect(stdout).toContain(`[OK] transcription server: ${own.url} answers`);
  expect(stdout).toMatch(/\[OK\] one word: \d+ ms/);
  expect(stdout).toMatch(/\[OK\] its transcription: \d+ ms: heard \d+ bytes/);
  expect(stdout).toContain('local_tts        needs no key');
  expect(stdout).not.toContain('local_realtime');
  expect(code).toBe(0);
  const report = JSON.parse((await voice('doctor', '--json')).stdout);
  expect(report).toMatchObject({
    speech: { provider: 'local', base_url: own.url, model: 'kokoro', voice: 'af_heart' },
    transcription: { provider: 'local', base_url: own.url, model: 'whisper-1', voice: null },
    output: { provider: 'local_tts', base_url: own.url, model: 'kokoro', voice: 'af_heart' },
    realtime: { provider: 'xai_realtime', base_url: null },
    latency: { provider: { first_audio_ms: expect.any(Number) }, speech: { total_ms: expect.any(Number) } },
  });
  const silent = own.calls.speech.length;
  expect((await voice('doctor', '--no-speech', '--json')).code).toBe(0);
  expect(own.calls.speech.length).toBe(silent);
});

it('05 §18: one cause and one remedy for each finding', async () => {
  const own = await startOwnServer({ models: ['kokoro'], voices: ['af_heart'] });
  const locked = await startOwnServer({ key: 'right' });
  const { voice, file } = await started({});
  const found = async (local: object) => {
    await writeFile(
      file,
      JSON.stringify({ ...both(local), stt: { provider: 'local', local: { base_url: own.url, model: 'kokoro' } } }),
    );
    const { code, stdout } = await voice('doctor', '--no-speech');
    return {
      code,
      text: /\[\w+\] (speech server: [^\n]*(?:\n {3}[^\n[]*$)*)/m.exec(stdout)?.[1]?.replace(/\s+/g, ' ').trim(),
    };
  };
  const closed = `http://127.0.0.1:${await closedPort()}/v1`;
  expect(await found({ base_url: closed })).toEqual({
    code: 1,
    text: `speech server: ${closed}: connection refused Fix: Start the server, or correct tts.local.base_url in ${file}.`,
  });
  expect(await found({ base_url: own.origin })).toEqual({
    code: 1,
    text: `speech server: ${own.origin} answers, and has no /audio/speech Fix: Set tts.local.base_url in ${file} to ${own.url}`,
  });
  expect((await found({ base_url: locked.url })).text).toContain(
    `${locked.url} wants a key Fix: Set tts.local.api_key in`,
  );
  expect((await found({ base_url: locked.url, api_key: 'no' })).text).toContain(
    'refuses the key Fix: Correct tts.local.api_key',
  );
  expect(await found({ base_url: own.url, model: 'tts-9', voice: 'af_heart' })).toMatchObject({
    text: expect.stringContaining('does not list the model tts-9 Fix: Set tts.local.model in'),
  });
  expect((await found({ base_url: own.url, model: 'kokoro', voice: 'eve' })).text).toMatch(
    /does not list the voice eve Fix: .* to one that it has: af_heart/,
  );
  expect((await found({ command: ['no-such-program'] })).text).toContain(
    'the program no-such-program was not found Fix: Install it, or correct tts.local.command in',
  );
});

it('05 §18: says nothing of servers that it cannot know: the relay has other variables', async () => {
  const own = await startOwnServer();
  const { relay } = await started({});
  await writeFile(join(relay.agentHome, 'config.yaml'), JSON.stringify(both({ base_url: own.url })));
  const { stdout } = await run(['voice', 'doctor', '--no-speech', '--json'], {
    env: { RELAY_PORT: String(relay.port) },
  });
  expect(JSON.parse(stdout)).toMatchObject({
    speech: { provider: 'local', base_url: null },
    output: { base_url: null },
  });
  expect(own.calls.requests.every(({ target }) => target.startsWith('GET'))).toBe(true);
});

it('05 §18: a renderer whose server is configured without a key has no need of one', async () => {
  const own = await startOwnServer();
  const { voice } = await started(
    { tts: { provider: 'openai', openai: { base_url: own.url } } },
    { RELAY_VOICE_OUTPUT_PROVIDER: 'openai_tts' },
  );
  const { stdout } = await voice('doctor', '--no-speech');
  expect(stdout).not.toContain('openai_tts has no key');
  expect(stdout).toMatch(/\[OK\] voice output: openai_tts/);
  expect(stdout).toMatch(/openai_tts +needs no key/);
});
