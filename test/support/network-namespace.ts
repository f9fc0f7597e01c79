import { execFile } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { onTestFinished, type TestContext } from 'vitest';
import { type Child, launch } from './process.ts';

const run = (...args: string[]) => promisify(execFile)('ip', args);

/**
 * A network namespace with one way out, to `gateway` on this machine. There `localhost` stands for the gateway, so that
 * certificates for `localhost` hold. Removed after the test, which is skipped where none can be made.
 */
export async function createNamespace(context: TestContext) {
  const id = randomBytes(4).toString('hex');
  const [name, outer, inner] = [`svc-${id}`, `svo${id}`, `svi${id}`];
  const subnet = `10.${randomInt(200, 250)}.${randomInt(1, 250)}`;
  const gateway = `${subnet}.1`;
  const files = `/etc/netns/${name}`;
  onTestFinished(async () => {
    // The interfaces go with the namespace.
    await run('netns', 'del', name).catch(() => {});
    await rm(files, { recursive: true, force: true }).catch(() => {});
  });
  try {
    await mkdir(files, { recursive: true });
    await writeFile(`${files}/hosts`, `${gateway} localhost\n`);
    await run('netns', 'add', name);
    await run('link', 'add', outer, 'type', 'veth', 'peer', 'name', inner, 'netns', name);
    await run('address', 'add', `${gateway}/24`, 'dev', outer);
    await run('link', 'set', outer, 'up');
    await run('-n', name, 'address', 'add', `${subnet}.2/24`, 'dev', inner);
    for (const device of ['lo', inner]) await run('-n', name, 'link', 'set', device, 'up');
  } catch (error) {
    process.stderr.write(`SKIPPED: no network namespace can be made here: ${error}\n`);
    context.skip('no network namespace can be made here');
  }
  return {
    gateway,
    /** Starts Node inside. */
    launch: (args: string[], env: Record<string, string>): Child =>
      launch('ip', ['netns', 'exec', name, process.execPath, ...args], { PATH: process.env.PATH ?? '', ...env }),
  };
}
