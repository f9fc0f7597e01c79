import { describe, expect, it } from 'vitest';
import { hideSecrets } from '../../../lib/kit/secret-text.ts';
import { createLog } from '../../../lib/log.ts';
import { createApproval } from '../../../lib/operations/approve.ts';
import { openGate } from '../../../lib/operations/gate.ts';
import { shownCall } from '../../../lib/operations/shown-call.ts';
import type { Ask, AskResult } from '../../../lib/phone/asks.ts';
import { createStores } from '../../../storage/index.ts';
import { createTestClock } from '../../support/clock.ts';
import { startWatch } from '../../support/cpu.ts';

async function setup(state: 'queued' | 'sent' | 'shown') {
  const clock = createTestClock();
  const log = createLog('ERROR', () => {});
  const gate = await openGate({ store: createStores('node').open('freeze'), clock, log });
  const asked: Ask[] = [];
  let settle: (result: AskResult) => void = () => {};
  const phone = {
    ask: (ask: Ask) =>
      new Promise<AskResult>((resolve) => {
        asked.push(ask);
        settle = resolve;
        ask.signal?.addEventListener('abort', () => resolve({ answer: null, no_answer: true, reason: 'aborted' }));
        ask.onProgress?.(state);
      }),
  };
  const operation = createApproval({ phone, gate, clock });
  const decide = async (input: Record<string, unknown> = {}, signal = new AbortController().signal) => {
    const { json } = await operation.run(
      { tool_name: 'Bash', input, timeout_s: 300 },
      { actor: { kind: 'operator' }, signal },
    );
    return JSON.parse(json);
  };
  return { clock, gate, asked, decide, settle: (result: AskResult) => settle(result) };
}

describe('phone_approve (contract 09 §7)', () => {
  it('denies within 5 s where no phone takes the question', async () => {
    const { clock, decide } = await setup('queued');
    const verdict = decide();
    await clock.advanceAsync(5_000);
    expect(await verdict).toEqual({ behavior: 'deny', message: expect.stringMatching(/no phone/) });
  });

  it('waits for a phone that has it, and allows only a tap on "Allow"', async () => {
    for (const [answer, answer_index, behavior] of [
      ['Allow', 0, 'allow'],
      ['Allow', undefined, 'deny'],
      ['Allow it', undefined, 'deny'],
      ['Deny', 1, 'deny'],
      ['Deny and stop', 2, 'deny'],
    ] as const) {
      const { clock, decide, settle } = await setup('shown');
      const verdict = decide({ a: 1 });
      await clock.advanceAsync(60_000);
      settle({ answer, answer_index, by: 'Pixel', after_s: 1 });
      expect((await verdict).behavior, answer).toBe(behavior);
    }
  });

  it('denies at once while frozen, and what waits when a freeze begins, even if the answer comes with it', async () => {
    const { gate, decide, asked, settle } = await setup('shown');
    const verdict = decide();
    settle({ answer: 'Allow', answer_index: 0, by: 'Pixel', after_s: 1 });
    await gate.freeze('operator', 'stop');
    expect((await verdict).behavior).toBe('deny');
    expect(await decide()).toEqual({ behavior: 'deny', message: 'frozen by operator: stop' });
    expect(asked).toHaveLength(1);
  });
});

describe('what the owner is shown', () => {
  it('names each field, clips in the middle, and hides secrets', () => {
    const text = shownCall('Bash', {
      command: `echo ${'a'.repeat(5_000)}; rm -rf /`,
      env: { API_KEY: 'k-1', nested: [{ password: 'p-2' }] },
      token: 't-3',
    });
    expect(text).toMatch(/^The agent wants to use Bash\./);
    expect(text).toContain('characters not shown]');
    expect(text).toContain('; rm -rf /');
    expect(text).not.toMatch(/k-1|p-2|t-3/);
    expect(text.length).toBeLessThan(7_000);
    expect(shownCall('x', { a: 'safe\u202egnp' })).toContain('\\u202e');
  });

  it('hides credentials by their form and by the name before them', () => {
    const secrets = [
      'Authorization: Bearer abcdef123456',
      'https://user:hunter2secret@example.com/x',
      'export OPENAI_API_KEY=sk-abcdefghijklmnopqrstuv',
      'gh --token ghp_abcdefghijklmnopqrstuvwxyz0123',
      'mysql --password "correct horse"',
      '{"client_secret": "topsecretvalue"}',
      '-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----',
      'AKIAABCDEFGHIJKLMNOP',
    ];
    for (const text of secrets) {
      const hidden = hideSecrets(text);
      expect(hidden, text).toContain('[hidden]');
      expect(hidden).not.toMatch(/abcdef123456|hunter2|sk-abc|ghp_|correct horse|topsecret|MIIE|AKIA/);
    }
    for (const text of ['git commit -m "spin the wheel"', 'total_tokens: 12', 'ls -la /home']) {
      expect(hideSecrets(text)).toBe(text);
    }
  });

  it('takes little time for texts that are made to take long', () => {
    const passed = startWatch();
    for (const text of ['a', 'a=', '://', '-----BEGIN PRIVATE KEY-----', '--a ', '"']) {
      shownCall('x', { command: text.repeat(100_000) });
    }
    expect(passed()).toBeLessThan(1_000);
  });
});
