import { expect, onTestFinished, vi } from 'vitest';
import { createNodeDialUpstream } from '../../../../../lib/host/node/upstream-socket.ts';
import { type Clock, systemClock } from '../../../../../lib/kit/clock.ts';
import { createProviders } from '../../../../../lib/voice/agent/provider/index.ts';
import type { ProviderEvent, ProviderOptions } from '../../../../../lib/voice/agent/provider/provider.ts';
import { createVoiceCredentials } from '../../../../../lib/voice/credentials.ts';
import { TIMEOUT } from '../../../../support/limits.ts';
import { startProvider } from '../../../../support/voice/provider.ts';

export const SECRET = 'sk-live-0123456789abcdef';
export const NATIVE = ['openai_realtime', 'xai_realtime'];

export const TOOL = {
  name: 'svc_get_status',
  description: 'Tells what runs.',
  parameters: { type: 'object', properties: {} },
};

/** A fake provider, and sessions with it. */
export async function startProviders(clock: Clock = systemClock, env?: Record<string, string>) {
  const provider = await startProvider();
  const http = `${provider.url}/v1`;
  const credentials = createVoiceCredentials({
    env: env ?? { OPENAI_API_KEY: SECRET, OPENAI_BASE_URL: http, XAI_API_KEY: SECRET, XAI_BASE_URL: http },
  });
  const providers = createProviders({ dialUpstream: createNodeDialUpstream(), clock, credentials });

  async function connect(id: string, changes: Partial<ProviderOptions> = {}) {
    const events: ProviderEvent[] = [];
    const end = new AbortController();
    onTestFinished(() => end.abort());
    const options = {
      model: 'm 1',
      voice: 'v',
      sampleRate: 24_000,
      instructions: 'Be brief.',
      tools: [TOOL],
      signal: end.signal,
      ...changes,
    };
    const session = await (providers(id) ?? expect.fail())(options, (event) => events.push(event));
    /** The first event of a type that has come, or comes. */
    const event = <T extends ProviderEvent['type']>(type: T) =>
      vi.waitFor(
        () => {
          const found = events.find((one) => one.type === type);
          if (!found) throw new Error(`no ${type} among ${events.map((one) => one.type).join(', ')}`);
          return found as Extract<ProviderEvent, { type: T }>;
        },
        { interval: 5, timeout: TIMEOUT },
      );
    return { session, events, event, end };
  }

  return { provider, connect };
}

export const samplesOf = (pcm: Uint8Array): number[] => {
  const view = new DataView(pcm.buffer, pcm.byteOffset, pcm.byteLength);
  return Array.from({ length: pcm.length / 2 }, (_, at) => view.getInt16(at * 2, true));
};

export const pcmOf = (samples: readonly number[]): Uint8Array => {
  const pcm = new Uint8Array(samples.length * 2);
  for (const [at, sample] of samples.entries()) new DataView(pcm.buffer).setInt16(at * 2, sample, true);
  return pcm;
};
