import { readFileSync, statSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { encode } from 'uqr';
import { describe, expect, test } from 'vitest';
import { terminalQr, writeQrPng } from '../../cli/pair/qr.ts';
import { agentHome } from '../support/cli.ts';
import { readPng } from '../support/png.ts';

const text = JSON.stringify({ svc: 2, host: '192.168.1.20', key: 'a secret', note: 'ünï' });

const modules = (border: number) => encode(text, { ecc: 'L', boostEcc: false, border }).data;

describe('PNG', () => {
  test('contains the code, with 8 pixels per module and a border of 4 modules', async () => {
    const path = await writeQrPng(text, agentHome());
    const { side, pixels } = readPng(readFileSync(path as string));
    const expected = modules(4);
    expect(side).toBe(expected.length * 8);
    for (let y = 0; y < side; y++) {
      for (let x = 0; x < side; x++) {
        if (pixels[y]?.[x] !== expected[y >> 3]?.[x >> 3]) throw new Error(`pixel ${x},${y} is wrong`);
      }
    }
  });

  test('is readable by its owner only, under an unguessable name', async () => {
    const home = agentHome();
    const [one, two] = [await writeQrPng(text, home), await writeQrPng(text, home)];
    expect(one).not.toBe(two);
    expect(dirname(one as string)).toBe(home);
    expect(basename(one as string)).toMatch(/^svc-pair-[\w-]{16}\.png$/);
    expect(statSync(one as string).mode & 0o777).toBe(0o600);
  });

  test('too long for any QR code', async () => {
    expect(await writeQrPng('x'.repeat(3000), agentHome())).toBeNull();
    expect(terminalQr('x'.repeat(3000), { colour: false })).toBeNull();
  });
});

describe('terminal', () => {
  test('half blocks, level L, 1 module of border', () => {
    const expected = modules(1);
    const rows = terminalQr(text, { colour: false }) as string[];
    expect(rows).toHaveLength(Math.ceil(expected.length / 2));
    const read = rows.flatMap((row) => [
      [...row].map((block) => !'█▀'.includes(block)),
      [...row].map((block) => !'█▄'.includes(block)),
    ]);
    expect(read.slice(0, expected.length)).toEqual(expected);
  });

  test('every coloured row sets and resets the colour', () => {
    for (const row of terminalQr(text, { colour: true }) as string[]) {
      expect(row.startsWith('\u001b[97m\u001b[40m') && row.endsWith('\u001b[0m')).toBe(true);
    }
  });
});
