import { chmod, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { startBuiltTarget } from '../support/built-relay.ts';
import { run } from '../support/companion-cli.ts';
import { temporaryDirectory } from '../support/temp.ts';
import { spokenSeconds, startOwnServer } from '../support/voice/openai-server.ts';

/** A relay that speaks with a server at home, and a player that keeps what it is given. */
async function started() {
  const own = await startOwnServer({ models: ['kokoro'], voices: ['af_heart', 'bm_lewis', 'de_anna'] });
  const relay = await startBuiltTarget({ env: { RELAY_VOICE_OUTPUT_PROVIDER: 'local' } });
  onTestFinished(() => relay.stop());
  const local = { base_url: own.url, model: 'kokoro', voice: 'bm_lewis' };
  await writeFile(join(relay.agentHome, 'config.yaml'), JSON.stringify({ tts: { provider: 'local', local } }));
  const PATH = await temporaryDirectory();
  await writeFile(join(PATH, 'aplay'), '#!/bin/sh\nexec /bin/cat >> "$0.heard"\n');
  await chmod(join(PATH, 'aplay'), 0o700);
  const heard = async () => (await readFile(join(PATH, 'aplay.heard')).catch(() => Buffer.alloc(0))).length;
  const voices = (words: string[], env: Record<string, string> = { PATH }) =>
    run(['voice', 'voices', ...words], { env: { RELAY_PORT: String(relay.port), ...env } });
  return { own, voices, heard };
}

it('shows the voices of each provider, and those that the settings choose', async () => {
  const { voices, own } = await started();
  const { code, stdout } = await voices([]);
  expect(code).toBe(0);
  expect(stdout).toMatch(
    /^local_tts \(chosen\)\n {2}bm_lewis +Bm_lewis \(chosen\)|^local_tts \(chosen\)\n {2}bm_lewis +\(chosen\)/m,
  );
  expect(stdout).toMatch(/^ {2}af_heart/m);
  expect(stdout).toMatch(/^xai_tts: has no key\n/m);
  expect(stdout).not.toContain('stub');
  const { providers } = JSON.parse((await voices(['--provider', 'local', '--json'])).stdout);
  expect(providers).toMatchObject([
    {
      id: 'local_tts',
      is_chosen: true,
      models: ['kokoro'],
      voices: [
        { id: 'bm_lewis', is_chosen: true },
        { id: 'af_heart', is_chosen: false },
        { id: 'de_anna', is_chosen: false },
      ],
      status: 'ok',
    },
  ]);
  expect(own.calls.speech).toEqual([]);
});

it('plays those that are named, with the sentence, the language and the speed', async () => {
  const { voices, own, heard } = await started();
  const text = 'Guten Tag.';
  const words = ['de_anna', 'mix+ed', '--play', '--text', text, '--language', 'de', '--speed', '1.5'];
  const { code, stdout } = await voices(words);
  expect([code, stdout]).toEqual([0, 'local_tts  de_anna\nlocal_tts  mix+ed\n']);
  expect(own.calls.speech).toMatchObject([
    { voice: 'de_anna', input: text, speed: 1.5 },
    { voice: 'mix+ed', input: text, speed: 1.5 },
  ]);
  expect(await heard()).toBe(2 * Math.round(spokenSeconds(text) * 24_000) * 2);
  expect((await voices(['--play'])).stdout).toBe('local_tts  bm_lewis\nlocal_tts  af_heart\nlocal_tts  de_anna\n');
});

it('says what is wrong', async () => {
  const { voices } = await started();
  expect((await voices(['nova'])).stderr).toContain('voices are named with --play only');
  expect((await voices(['--play', '--speed', '9'])).stderr).toContain('--speed: must be a number from 0.25 to 4');
  expect((await voices(['--play'], { PATH: '/nonexistent' })).stderr).toMatch(
    /no player was found.*\n.*apt install alsa-utils/,
  );
  expect((await voices(['--provider', 'nobody'])).stderr).toContain('unknown voice provider');
  expect((await voices(['../x', '--play'])).code).toBe(0);
});
