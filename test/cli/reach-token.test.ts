import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { agentHome, run } from '../support/cli.ts';

it('svc reach token keeps every host that is added to one credentials file at the same time', async () => {
  const file = join(agentHome(), 'hosts.json');
  const made = await Promise.all(
    [1, 2, 3].map(() => run(['reach', 'token', '--credentials', file, '--json'], { env: { SVC_HOME: agentHome() } })),
  );
  const ids = made.map(({ stdout }) => JSON.parse(stdout).host_id);
  expect(Object.keys(JSON.parse(readFileSync(file, 'utf8')).hosts).sort()).toEqual(ids.sort());
  expect(statSync(`${file}.lock`).mode & 0o777).toBe(0o600);
});
