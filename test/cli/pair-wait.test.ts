import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BuiltTarget, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome } from '../support/cli.ts';
import { begin, run } from '../support/companion-cli.ts';

let relay: BuiltTarget;
beforeAll(async () => {
  relay = await startBuiltTarget();
});
afterAll(() => relay.stop());

const pair = (setting: { columns?: number; rows?: number } = {}, ...words: string[]) =>
  begin(['pair', ...words], { tty: true, env: { RELAY_PORT: String(relay.port) }, ...setting });
const codeOf = (text: string) => [...text.matchAll(/Code +([A-Z0-9]{6}) /g)].at(-1)?.[1] as string;
const pngs = (home: string) => readdirSync(home).filter((name) => name.endsWith('.png'));

/** Pairs a companion by the code that was printed last. */
async function usedBy(name: string, command: { stdout: string }) {
  const payload = { svc: 1, relay: { url: `ws://127.0.0.1:${relay.port}`, code: codeOf(command.stdout) } };
  const home = agentHome();
  const { code, stderr } = await run(['companion', 'pair', '-', '--name', name], {
    home,
    input: JSON.stringify(payload),
  });
  expect([code, stderr]).toEqual([0, '']);
}

describe('svc pair on a terminal waits (contract 09 §2)', () => {
  it('says who came, removes its file, and gives the terminal back', async () => {
    const command = pair({ columns: 80, rows: 24 });
    await command.prints(/Waiting for a device, (10:00|9:5\d) left/);
    expect(command.stdout).toMatch(/\.png\nThe file is removed when this command ends\./);
    expect(pngs(command.home)).toHaveLength(1);
    await usedBy('Pixel 9', command);
    const { code, stdout } = await command.ended;
    expect(code).toBe(0);
    expect(stdout).toMatch(/\r *\rPaired: Pixel 9 \(android\)\nSee it, or revoke it, with: svc devices\n$/);
    expect(pngs(command.home)).toEqual([]);
    expect(command.raw).toEqual([true, false]);
  });

  it('the code is last on the screen, with the link folded until l is pressed', async () => {
    const command = pair({ columns: 200, rows: 100 });
    await command.prints(/Waiting for a device/);
    expect(command.stdout).toMatch(/█[^\n]*\n(?:warning|Waiting)?/);
    expect(command.stdout).toMatch(/svc-relay:\/\/pair\?payload=[\w-]+… \(press l for all of it\)/);
    expect(pngs(command.home)).toEqual([]);
    command.type('l');
    const [, link = ''] = await command.prints(/\r(svc-relay:\/\/pair\?payload=[\w-]+)\n/);
    const payload = JSON.parse(Buffer.from(link.split('=')[1] as string, 'base64url').toString());
    expect(payload.relay.code).toBe(codeOf(command.stdout));
    command.type('\u0003');
    expect((await command.ended).code).toBe(0);
  });

  it('r makes a new code, and both are told from others', async () => {
    const command = pair();
    await command.prints(/Waiting for a device/);
    const first = codeOf(command.stdout);
    command.type('r');
    await command.prints(new RegExp(`Code +(?!${first})[A-Z0-9]{6} [^]*Waiting for a device`));
    await usedBy('Tablet', command);
    expect((await command.ended).stdout).toMatch(/Paired: Tablet \(android\)/);
  });

  it.each(['q', '\u0003', 'stop'])('%j leaves cleanly, and says that the code stays good', async (key) => {
    const command = pair({ columns: 40, rows: 20 });
    await command.prints(/q leave/);
    expect(pngs(command.home)).toHaveLength(1);
    if (key === 'stop') command.stop();
    else command.type(key);
    const { code, stdout, stderr } = await command.ended;
    expect(code).toBe(0);
    expect(stdout).toMatch(/Nothing has been paired yet\. The code\nstays valid until \d\d:\d\d\.\n$/);
    expect(stderr).not.toContain('error');
    expect(pngs(command.home)).toEqual([]);
    expect(command.raw.at(-1)).toBe(false);
  });

  it('--no-wait, and a pipe, print and leave', async () => {
    for (const [tty, words] of [
      [true, ['--no-wait']],
      [false, []],
    ] as const) {
      const command = begin(['pair', ...words], { tty, env: { RELAY_PORT: String(relay.port) } });
      const { code, stdout } = await command.ended;
      expect(code).toBe(0);
      expect(stdout).not.toContain('Waiting');
      expect(stdout).toMatch(/svc-relay:\/\/pair\?payload=[\w-]+\n/);
      expect(command.raw).toEqual([]);
    }
  });
});
