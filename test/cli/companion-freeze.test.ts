import { beforeEach, describe, expect, it, vi } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { begin, paired, run } from '../support/companion-cli.ts';
import { bearer, pair } from '../support/relay.ts';

const pending = cleanups();
let relay: BuiltTarget;
beforeEach(async () => {
  relay = await startBuiltTarget();
  pending.push(() => relay.stop());
});

const gate = () => relay.relay.gate;

/** A command that asks the owner first. */
const callFor = (token: string) =>
  relay.fetch('/call', {
    method: 'POST',
    headers: bearer(token),
    body: JSON.stringify({ number: '+15550100' }),
  });

describe('svc companion run while the relay is frozen (contract 09 §3)', () => {
  it('f freezes at once, however often it is pressed; f and then Enter ends it', async () => {
    const home = await paired(relay.port);
    const companion = begin(['companion', 'run', '--name', 'Pixel 9'], { home, tty: true });
    await companion.prints(/online: /);
    companion.type('f');
    await companion.prints(/Frozen by \S.* for \d+ s \| f ends it/);
    expect(gate().state()).toMatchObject({ reason: null });
    companion.type('ff');
    await companion.prints(/End the freeze\? Enter ends it/);
    companion.type('x\r');
    await companion.prints(/End the freeze\?.*End the freeze\?/s);
    expect(gate().state()).toBeDefined();
    companion.type('f\r');
    await companion.prints(/The relay is no longer frozen\./);
    expect(gate().state()).toBeUndefined();
  });

  it('says so when this session may not end it', async () => {
    const home = await paired(relay.port, { without: ['bridge'] });
    await gate().freeze('operator', 'wait');
    const companion = begin(['companion', 'run'], { home, tty: true });
    // It began before this companion connected.
    await companion.prints(/Frozen by operator for \d+ s: wait \| f ends it/);
    companion.type('f\r');
    await companion.prints(/! cannot end the freeze: .*bridge/);
    expect(gate().state()).toBeDefined();
  });

  it('drops the command under way: its question closes, and a late answer is not sent', async () => {
    const home = await paired(relay.port);
    const { token } = await pair(relay);
    const words = ['companion', 'run', '--json', '--master', 'on', '--grant', 'all'];
    const companion = begin(words, { home });
    await companion.prints(/"state":"online"/);
    const answer = callFor(token);
    await companion.prints(/"event":"confirm"/);
    const [{ request_id: id } = {}] = companion.events('confirm');
    await run(['freeze', 'lost my phone'], { env: { RELAY_PORT: String(relay.port) } });
    const response = await answer;
    expect([response.status, await response.json()]).toEqual([
      423,
      expect.objectContaining({ error: 'frozen by operator: lost my phone', error_code: 'frozen' }),
    ]);
    await vi.waitFor(() => expect(companion.events('command')).toHaveLength(1));
    expect(companion.events('confirmed')).toMatchObject([{ request_id: id, answer: 'frozen' }]);
    expect(companion.events('command')).toMatchObject([{ path: '/call', decision: 'cancelled' }]);
    expect(companion.events('frozen')).toMatchObject([{ frozen: true, by: 'operator', reason: 'lost my phone' }]);
    companion.type(`{"request_id":"${id}","allow":true}\n`);
    await companion.prints(/no such question is open/);
    expect((await callFor(token)).status).toBe(423);
    await run(['unfreeze'], { env: { RELAY_PORT: String(relay.port) } });
    await vi.waitFor(() => expect(companion.events('frozen').at(-1)).toMatchObject({ frozen: false }));
    void callFor(token).catch(() => {});
    await vi.waitFor(() => expect(companion.events('confirm')).toHaveLength(2));
  });
});
