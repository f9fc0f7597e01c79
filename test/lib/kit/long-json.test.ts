import { describe, expect, it } from 'vitest';
import { parseSimpleJson, readLongJson } from '../../../lib/kit/long-json.ts';
import { TIMED } from '../../support/limits.ts';

const KiB = 1024;
const MiB = 1024 * KiB;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

describe('long JSON (contract 02 §1.1)', () => {
  it.each([
    ['200,000 parts', `[${Array(199_999).fill(1).join(',')}]`, true],
    ['199,999 commas and two brackets', `[${Array(200_000).fill(1).join(',')},[]]`, false],
    ['empty objects', `[${Array(100_001).fill('{}').join(',')}]`, false],
    ['256 levels', `${'['.repeat(256)}${']'.repeat(256)}`, true],
    ['257 levels', `${'['.repeat(257)}${']'.repeat(257)}`, false],
    ['levels of both kinds', `${'[{"a":'.repeat(129)}1${'}]'.repeat(129)}`, false],
    ['many levels one after the other', `[${Array(50_000).fill('[[]]').join(',')}]`, true],
    [
      'names of 8 MiB',
      `[${Array(1023)
        .fill(`{"${'n'.repeat(8 * KiB - 81)}":1}`)
        .join(',')}]`,
      true,
    ],
    [
      'longer names',
      `[${Array(1025)
        .fill(`{"${'n'.repeat(8 * KiB - 81)}":1}`)
        .join(',')}]`,
      false,
    ],
    ['100,000 short names', `{${Array(100_000).fill('"n":1').join(',')}}`, true],
    ['more short names', `{${Array(104_000).fill('"n":1').join(',')}}`, false],
    ['numbers of 8 MiB', `[ ${'7'.repeat(8 * MiB)} ]`, true],
    ['longer numbers', `[${'7'.repeat(4 * MiB)},-${'7'.repeat(4 * MiB)}]`, false],
    ['blanks of more than that', `[1${' \n'.repeat(5 * MiB)}]`, true],
    ['other strings of more than that', `["${'n:'.repeat(5 * MiB)}"]`, true],
    ['structure in a string', `["${'[{,'.repeat(200_000)}"]`, true],
    ['structure after an escaped quote', `["\\"${'[{,'.repeat(200_000)}\\\\"]`, true],
    ['structure after a string that ends in a backslash', `["\\\\"${',[]'.repeat(100_001)}]`, false],
  ])('%s', async (_name, text, isAccepted) => {
    for (const source of [text, bytes(text)]) {
      const answer = await readLongJson(source);
      expect(isAccepted ? answer === text : answer === null).toBe(true);
    }
  });

  it.each([
    ['short', ''],
    ['decoded in slices', '\u4e2d'.repeat(MiB)],
  ])('keeps or drops a byte-order mark, and refuses invalid UTF-8 if asked: %s', async (_name, rest) => {
    expect((await readLongJson(bytes(`\ufeff{}${rest}`))) === `{}${rest}`).toBe(true);
    expect((await readLongJson(bytes(`\ufeff{}${rest}`), { ignoreBOM: true })) === `\ufeff{}${rest}`).toBe(true);
    const invalid = Buffer.concat([bytes(`["${rest}`), new Uint8Array([0xff, 0xe4, 0xb8]), bytes('"]')]);
    expect((await readLongJson(invalid)) === `["${rest}\ufffd\ufffd"]`).toBe(true);
    await expect(readLongJson(invalid, { fatal: true })).rejects.toThrow(TypeError);
    const cut = bytes(`"${rest}\u4e2d`).subarray(0, -1);
    expect((await readLongJson(cut)) === `"${rest}\ufffd`).toBe(true);
    await expect(readLongJson(cut, { fatal: true })).rejects.toThrow(TypeError);
  });
});

describe('simple JSON', () => {
  const long = 'A'.repeat(2 * MiB);

  it.each([
    ['a long string', JSON.stringify({ type: 'input_audio.append', audio_base64: long })],
    ['10,000 parts', `[${Array(10_000).fill('"12345678"').join(',')}]`],
    ['structure in a long string', JSON.stringify([`"${'[{,'.repeat(100 * KiB)}`])],
    ['pairs of code units across slices', JSON.stringify([`a${'\u{1F600}'.repeat(100 * KiB)}`])],
    ['many parts in a short text', `[${Array(20_000).fill(1).join(',')}]`],
  ])('parses %s', (_name, text) => {
    expect(parseSimpleJson(text)).toEqual(JSON.parse(text));
  });

  it.each([
    ['more parts', `[${Array(10_001).fill('"12345678"').join(',')}]`],
    ['levels', `${'['.repeat(MiB)}${']'.repeat(MiB)}`],
    ['what is not JSON', `"${long}`],
  ])('refuses %s', (_name, text) => {
    expect(parseSimpleJson(text)).toBeUndefined();
  });

  it.each([
    ['brackets', '['.repeat(2 * MiB)],
    ['empty lists', '[]'.repeat(MiB)],
    ['empty objects', `[${'{},'.repeat(650 * KiB)}{}]`],
    ['names', `{${Array.from({ length: 200_000 }, (_, at) => `"${at.toString(36)}":0`).join(',')}}`],
  ])('2 MiB of %s take less than 20 ms of the processor', TIMED, (_name, text) => {
    parseSimpleJson(text);
    const before = process.cpuUsage();
    for (let round = 0; round < 5; round++) expect(parseSimpleJson(text)).toBeUndefined();
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 5000).toBeLessThan(20);
  });
});
