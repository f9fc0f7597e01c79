import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { agentHome, fakeRelay, run } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';

async function relayEnv(): Promise<{ port: number; env: Record<string, string> }> {
  const { port } = await fakeRelay(() => ({ body: { version: '1.0.0' } }));
  return { port, env: { SVC_HOME: agentHome(), RELAY_PORT: String(port), NO_COLOR: '1' } };
}

it('09 §5: prints the address of the console', async () => {
  const { port, env } = await relayEnv();
  const { code, stdout, stderr } = await run(['console'], { env });
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toBe(`  Console  http://127.0.0.1:${port}/console/\nOpen it in a browser of this machine.\n`);
});

it('09 §5: over ssh, prints the line that leads to it from the machine in front', async () => {
  const { port, env } = await relayEnv();
  const SSH_CONNECTION = '192.0.2.7 50000 192.0.2.9 22';
  const ssh = `ssh -L ${port}:127.0.0.1:${port} ${userInfo().username}@192.0.2.9`;
  expect((await run(['console'], { env: { ...env, SSH_CONNECTION } })).stdout).toContain(`\n  ${ssh}\n`);
  const { stdout } = await run(['console', '--json'], { env: { ...env, SSH_CONNECTION } });
  expect(JSON.parse(stdout)).toEqual({ url: `http://127.0.0.1:${port}/console/`, ssh });
  // What is no address is not printed.
  const odd = await run(['console', '--json'], { env: { ...env, SSH_CONNECTION: 'a b c;id d' } });
  expect(JSON.parse(odd.stdout).ssh).toBeNull();
});

it('09 §5: --open opens it', async () => {
  const { port, env } = await relayEnv();
  const programs = agentHome();
  const seen = join(programs, 'seen');
  for (const name of ['xdg-open', 'open']) {
    writeFileSync(join(programs, name), `#!/bin/sh\nprintf %s "$1" > ${seen}.part && mv ${seen}.part ${seen}\n`);
    chmodSync(join(programs, name), 0o755);
  }
  const { code } = await run(['console', '--open'], { env: { ...env, PATH: `${programs}:${process.env.PATH}` } });
  expect(code).toBe(0);
  await expect.poll(() => existsSync(seen)).toBe(true);
  expect(readFileSync(seen, 'utf8')).toBe(`http://127.0.0.1:${port}/console/`);
});

it('09 §5: without a relay there is no console: exit 1 with the next step', async () => {
  const port = await closedPort();
  const { code, stdout, stderr } = await run(['console'], { env: { SVC_HOME: agentHome(), RELAY_PORT: String(port) } });
  expect([code, stdout]).toEqual([1, '']);
  expect(stderr).toMatch(/no relay answers.*svc relay start/s);
});
