import { readdir } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { describeMatrix } from '../support/relay.ts';
import { leftClips } from '../support/voice/clips.ts';
import type { ProviderCall } from '../support/voice/provider.ts';
import { clipForm, PROVIDER_KEY, startVoice } from '../support/voice/relay.ts';

describeMatrix(
  'POST /voice/synthesize of a host (contract 05 §7)',
  (start) => {
    it('leaves no descriptor, file or connection behind, whatever the provider does', async () => {
      const { provider, speak, transcribe } = await startVoice(start);
      const clip = clipForm(new Uint8Array(200_000));
      const descriptors = async () => (await readdir('/proc/self/fd')).length;
      const faults: Record<string, (call: ProviderCall) => void | Promise<void>> = {
        hang: () => {},
        drip: async (call) => {
          call.begin();
          await call.write('x');
        },
        garbage: (call) => call.answer(200, Buffer.from([0, 255, 254])),
        unauthorized: (call) => call.answer(401, PROVIDER_KEY),
        limited: (call) => call.answer(429, ''),
        failing: (call) => call.answer(500, 'x'.repeat(100_000)),
        oversized: async (call) => {
          call.begin();
          for (let sent = 0; sent < 17 && !call.isAbandoned; sent++) await call.write(Buffer.alloc(1024 * 1024));
          call.end();
        },
        empty: (call) => call.answer(200, ''),
        redirect: (call) => call.answer(302, '', { location: '/' }),
        cut: (call) => call.cut(),
      };
      const round = async (name: string) => {
        provider.onCall(faults[name] ?? (() => {}));
        const hangUp = new AbortController();
        const seen = provider.calls.length;
        const both = [speak({ text: 'x' }, { signal: hangUp.signal }), transcribe(clip, { signal: hangUp.signal })];
        const settled = Promise.allSettled(both.map(async (response) => (await response).arrayBuffer()));
        await provider.call(seen + 1);
        if (name === 'hang' || name === 'drip') hangUp.abort();
        await settled;
      };
      for (const name of Object.keys(faults)) await round(name);
      const before = await descriptors();
      for (const name of [...Object.keys(faults), ...Object.keys(faults)]) await round(name);
      await expect.poll(() => provider.calls.filter(({ isAbandoned }) => isAbandoned).length).toBeGreaterThan(0);
      await expect.poll(leftClips).toEqual([]);
      // Each fault twice more: anything that leaks would add four.
      await expect.poll(descriptors).toBeLessThan(before + 4);
    });
  },
  ['node'],
);
