import { writeFile } from 'node:fs/promises';
import { bearer, pair, post, type Target, type TargetOptions } from '../relay.ts';
import { type Provider, startProvider } from './provider.ts';

export const PROVIDER_KEY = 'sk-fake-key-of-the-provider';

/**
 * A relay whose basic voice path is openai, faked: named in the configuration file on Node, by the deployment's variables
 * at the edge, which has no files.
 */
export async function startVoice(start: (options?: TargetOptions) => Promise<Target>) {
  const provider = await startProvider();
  const target = await start({ env: { OPENAI_API_KEY: PROVIDER_KEY, OPENAI_BASE_URL: provider.url } });
  const openai = { api_key: PROVIDER_KEY, base_url: provider.url };
  const section = { provider: 'openai', openai };
  // JSON is YAML.
  const configure = (config: object) => writeFile(`${target.agentHome}/config.yaml`, JSON.stringify(config));
  if (target.runtime === 'node') await configure({ tts: section, stt: section });
  const { token, client } = await pair(target);
  return { target, provider, token, client, configure, section, ...callsOf(target, provider, token) };
}

function callsOf(target: Target, _provider: Provider, token: string) {
  return {
    speak: (body: unknown, init: RequestInit = {}) =>
      target.fetch('/voice/synthesize', { ...post(body), ...init, headers: bearer(token) }),
    transcribe: (body: BodyInit, { query = '', ...init }: RequestInit & { query?: string } = {}) =>
      target.fetch(`/voice/transcribe${query}`, {
        method: 'POST',
        body,
        ...init,
        headers: { ...bearer(token), ...init.headers },
      }),
  };
}

/** A form with one part, as clients send it. */
export function clipForm(
  content: Uint8Array<ArrayBuffer>,
  { name = 'audio', type = 'audio/wav', file = 'clip.wav' } = {},
) {
  const form = new FormData();
  form.append(name, new Blob([content], { type }), file);
  return form;
}
