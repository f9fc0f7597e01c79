import { expect, it } from 'vitest';
import { TIMED } from '../support/limits.ts';
import { longestTurn } from '../support/longest-turn.ts';
import { profileClient, put } from '../support/profiles.ts';
import { bearer, describeMatrix } from '../support/relay.ts';

describeMatrix(
  'files that stop whoever parses them (contract 02 §1.1)',
  (start) => {
    const lines = (count: number, line: (index: number) => string) =>
      Array.from({ length: count }, (_, index) => line(index)).join('');
    const attacks: [string, string][] = [
      ['20,000 keys', lines(20_000, (at) => `k${at}: 1\n`)],
      ['an anchor and an alias per line', lines(9_000, (at) => `k${at}: &a${at} 1\nl${at}: *a${at}\n`)],
      ['merges', `a: &a\n${lines(15_000, (at) => `  k${at}: 1\n`)}${lines(90, (at) => `z${at}:\n  <<: *a\n`)}`],
      ['an anchor that contains itself', 'a: &a\n  b: *a\n'],
    ];

    it.each(attacks)('%s: no stop over 50 ms', { ...TIMED, timeout: 300_000 }, async (_name, text) => {
      const target = await start();
      const { get, token } = await profileClient(target);
      await put(target, {
        'config.yaml': text,
        'profiles/work/config.yaml': text,
        'skills/c/s/SKILL.md': `---\n${text.slice(0, 60_000).replace(/.*$/, '')}---\n`,
      });
      await get('default/config');
      const { result, longest } = await longestTurn(async () => [
        await get('default/config'),
        await get('work/config'),
        await get('default/skills'),
        await target.operator('/pairing/mint', { method: 'POST', body: '{}' }),
        await target.fetch('/relay/info', { headers: bearer(token) }),
        await target.relay?.profiles.rescan(),
      ]);
      for (const answer of result.slice(0, 2)) {
        expect([200, 500]).toContain((answer as { status: number }).status);
      }
      expect(longest).toBeLessThan(50);
    });
  },
  ['node'],
);
