import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort, runSvc, startRelayProcess, temporaryHome } from '../process.ts';
import { randomCode, type Target } from '../relay.ts';
import { startProvider } from './provider.ts';
import { PROVIDER_KEY } from './relay.ts';

/** The built relay with a temporary directory of its own, whose providers are one fake. */
export async function startVoiceProcess({
  env = {},
  host = '127.0.0.1',
  tls = false,
}: {
  env?: Record<string, string>;
  host?: string;
  tls?: boolean;
} = {}) {
  const provider = await startProvider();
  const home = await temporaryHome();
  const port = await freePort();
  const temporary = join(home, 'tmp');
  await mkdir(temporary);
  const relay = await startRelayProcess({
    home,
    port,
    bare: true,
    tls,
    flags: ['--host', host, '--port', String(port)],
    env: {
      TMPDIR: temporary,
      OPENAI_API_KEY: PROVIDER_KEY,
      OPENAI_BASE_URL: provider.url,
      ELEVENLABS_API_KEY: PROVIDER_KEY,
      ELEVENLABS_BASE_URL: provider.url,
      RELAY_VOICE_OUTPUT_PROVIDER: 'openai_tts',
      ...env,
    },
  });
  const target = {
    url: relay.url,
    fetch: (path: string, init: RequestInit = {}) =>
      fetch(relay.url + path, { ...init, headers: { ...init.headers, connection: 'close' } }),
  };
  async function pair(policy: Record<string, unknown> = {}): Promise<string> {
    const code = randomCode();
    await relay.ask('/pairing/register', { method: 'POST', body: { code, ...policy } });
    const { frame, socket } = await relay.offer({ pairing_code: code, device_id: crypto.randomUUID() });
    socket.terminate();
    return String(frame.payload.session_token);
  }
  return {
    provider,
    relay,
    pair,
    target: target as Target,
    svc: (...words: string[]) => runSvc(words, { home, env: { RELAY_PORT: String(port), RELAY_HOST: host } }),
    sessions: async () => (await relay.ask('/sessions', { headers: { 'x-svc-operator': '1' } })).json.sessions,
    clips: async () => (await readdir(temporary)).filter((name) => name.startsWith('svc-relay-voice-')),
    runs: join(home, '.svc-relay', 'voice-output-runs'),
    descriptors: async () => (await readdir(`/proc/${relay.child.pid}/fd`)).length,
  };
}
