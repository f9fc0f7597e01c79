import { describe, expect, it } from 'vitest';
import { freePort, runSvc, startRelayProcess } from '../support/process.ts';

const payloadOf = (stdout: string): { relay: { url: string }; endpoints?: { role: string }[] } => {
  const [, encoded = ''] = /svc-relay:\/\/pair\?payload=([\w-]+)/.exec(stdout) ?? [];
  return JSON.parse(Buffer.from(encoded, 'base64url').toString());
};

describe('a relay that listens on loopback alone (contract 01 §9.4)', () => {
  it('gives codes for this machine, with one line about it, and the companion here pairs with them', async () => {
    // Started by a flag: the other commands find it by its lock, and not by the port that their shell names.
    const relay = await startRelayProcess();
    const env = { RELAY_PORT: '1' };
    const paired = await runSvc(['pair', '--no-qr'], { home: relay.home, env });
    expect(paired.code).toBe(0);
    const { relay: direct, endpoints = [] } = payloadOf(paired.stdout);
    expect(direct.url).toBe(`ws://127.0.0.1:${relay.port}`);
    expect(endpoints.filter(({ role }) => role === 'lan')).toEqual([]);
    const [first] = paired.stdout.split('\n');
    expect(first).toMatch(/^Only programs on this machine can use this code/);
    expect(first).toContain(`ws://127.0.0.1:${relay.port}`);

    // Standard input of the child is empty, so the link is an argument here.
    const [link = ''] = /svc-relay:\S+/.exec(paired.stdout) ?? [];
    const companion = await runSvc(['companion', 'pair', link], { home: relay.home, env });
    expect([companion.code, companion.stderr]).toEqual([0, '']);
    expect(companion.stdout).toContain(`ws://127.0.0.1:${relay.port}/ws`);

    const check = await runSvc(['pair', '--check'], { home: relay.home, env });
    expect(check.stdout).toMatch(new RegExp(`\\[WARN\\] listener: 127\\.0\\.0\\.1:${relay.port}: this machine only`));
  });

  it('says of a route which nothing answers that it does not, before it prints the code', async () => {
    const relay = await startRelayProcess();
    const port = await freePort();
    const words = ['pair', '--no-qr', '--mode', 'public', '--public-url', `http://127.0.0.9:${port}/relay`];
    const { code, stderr } = await runSvc(words, { home: relay.home, env: { RELAY_PORT: String(relay.port) } });
    expect(code).toBe(0);
    expect(stderr).toContain(`nothing answers on ws://127.0.0.9:${port}/relay, which this code names`);
  });
});
