import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { lockHolder } from '../../lib/host/node/relay-lock.ts';
import { freePort, isPortFree, runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';

/** No systemd of this machine has a say. */
const PATH = { PATH: dirname(process.execPath), RELAY_HOST: '127.0.0.1' };

it('svc relay uninstall stops a running relay first, and the next one starts empty (11 §3)', async () => {
  const home = await temporaryHome();
  const port = await freePort();
  const svc = (...words: string[]) => runSvc(words, { home, env: PATH });
  expect((await svc('up', '--port', String(port))).code).toBe(0);
  const pid = lockHolder(join(home, 'svc-relay/state.db'));
  expect((await svc('mcp', 'pair', '--yes')).code).toBe(0);
  await writeFile(join(home, '.env'), 'RELAY_LOG_LEVEL=INFO\n');
  const done = await svc('relay', 'uninstall', '--yes', '--json');
  expect([done.code, done.stderr]).toEqual([0, '']);
  expect(JSON.parse(done.stdout)).toMatchObject({ ok: true, stopped: pid, failed: [] });
  expect([existsSync(join(home, 'svc-relay')), existsSync(join(home, '.env')), await isPortFree(port)]).toEqual([
    false,
    true,
    true,
  ]);
  const next = await startRelayProcess({ home, port, env: PATH });
  expect((await next.ask('/sessions', { headers: { 'x-svc-operator': '1' } })).json.sessions).toEqual([]);
});
