import { fileURLToPath } from 'node:url';
import { freePort, launch } from './process.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));

/** Starts the built `svc relay dashboard-demo` on a free port, and reads its password from its output. */
export async function startDemoProcess({ home, relayPort }: { home: string; relayPort: number }) {
  const port = await freePort();
  const args = [PROGRAM, 'relay', 'dashboard-demo', '--port', String(port), '--relay-port', String(relayPort)];
  const child = launch(process.execPath, args, { PATH: process.env.PATH ?? '', HOME: home, SVC_HOME: home });
  const [, password = ''] = await child.prints(/Password +(\S+)\n/);
  return {
    port,
    password,
    url: `http://127.0.0.1:${port}`,
    stderr: () => child.stderr,
    stop: (signal: NodeJS.Signals) => child.kill(signal),
  };
}
