import { expect, it } from 'vitest';
import { digestOf } from '../../../../lib/kit/sha256.ts';
import { parseHosts } from '../../../../lib/reach/broker/hosts.ts';
import { hostIdOfLabel, labelOf } from '../../../../lib/reach/broker/label.ts';
import { newId, newToken } from '../../../../lib/reach/ids.ts';

const file = (hosts: unknown, more = {}) => parseHosts(JSON.stringify({ hosts, ...more }));

it('§7.1: reads one or two digests for each host', () => {
  const [a, b, one, two] = [newId(), newId(), digestOf('1'), digestOf('2')];
  expect(file({ [a]: { host_token_sha256: one }, [b]: { host_token_sha256: [one, two] } })).toEqual(
    new Map([
      [a, [one]],
      [b, [one, two]],
    ]),
  );
  expect(file({})).toEqual(new Map());
});

it('§7.1: refuses anything else, and never repeats what may be a token', () => {
  const [id, digest] = [newId(), digestOf('1')];
  const token = newToken() + newToken();
  const wrong = [
    parseHosts('not json'),
    parseHosts('[]'),
    file([]),
    file({}, { more: 1 }),
    file({ short: { host_token_sha256: digest } }),
    file({ [`${'A'.repeat(21)}B`]: { host_token_sha256: digest } }),
    file({ [id]: { host_token_sha256: token } }),
    file({ [id]: { host_token_sha256: [digest, digest, digest] } }),
    file({ [id]: { host_token_sha256: [] } }),
    file({ [id]: { host_token_sha256: digest, token } }),
    file({ [id]: digest }),
  ];
  for (const problem of wrong) {
    expect(typeof problem).toBe('string');
    expect(problem).not.toContain(token);
  }
});

it('§8: a host ID has one label, and only that', () => {
  for (let round = 0; round < 100; round++) {
    const id = newId();
    expect(labelOf(id)).toMatch(/^[a-z2-7]{26}$/);
    expect(hostIdOfLabel(labelOf(id))).toBe(id);
  }
  for (const wrong of ['', 'reach', 'a'.repeat(25), `${'a'.repeat(25)}b`, 'A'.repeat(26), `${'a'.repeat(25)}1`]) {
    expect(hostIdOfLabel(wrong)).toBeNull();
  }
});
