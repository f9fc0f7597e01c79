import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { OperatorRelay } from '../../cli/operator-relay.ts';
import type { CommandContext } from '../../cli/output.ts';
import { watchPairings } from '../../cli/pair/wait.ts';
import { seconds } from '../../lib/kit/clock.ts';
import { deferred } from '../../lib/kit/deferred.ts';
import { maskCode } from '../../lib/pairing/code.ts';
import { type BuiltTarget, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome } from '../support/cli.ts';
import { createTestClock } from '../support/clock.ts';
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

it('waits on when a stream without news is open again, as after the operator token of the last one (01 §12)', async () => {
  const clock = createTestClock();
  const code = { text: 'ABC234', expiresAt: seconds(clock) + 600 };
  const first = deferred();
  const second = deferred<(text: string) => void>();
  const devices: object[] = [];
  let streams = 0;
  const call: OperatorRelay['call'] = async ({ path, onText, signal }) => {
    if (path !== '/relay/events')
      return { devices, codes: [{ masked: maskCode(code.text), expires_at: code.expiresAt }] };
    streams++;
    onText?.(streams === 1 ? 'id: 1\nevent: reset\ndata: {}\n\n' : ': \n\n');
    if (streams === 1) await first.promise;
    else {
      second.resolve((text) => onText?.(text));
      await new Promise((resolve) => signal?.addEventListener('abort', resolve));
    }
    return {};
  };
  const relay = { call } as OperatorRelay;
  const context = { stdin: {}, stdout: {} } as CommandContext;
  const watch = await watchPairings(relay, context, clock);
  const end = watch?.wait(code, { countdown() {}, close() {}, showLink() {} });
  first.resolve();
  const send = await second.promise;
  clock.advance(31_000);
  devices.push({ token_prefix: 'p1', device_name: 'Pixel 9', client_surface: 'android' });
  send(`id: 2\nevent: pairing\ndata: ${JSON.stringify({ change: 'used', masked: maskCode(code.text) })}\n\n`);
  send('id: 3\nevent: device\ndata: {"change":"connected","token_prefix":"p1"}\n\n');
  expect(await end).toEqual({ name: 'paired', device: 'Pixel 9 (android)' });
  watch?.stop();
});
