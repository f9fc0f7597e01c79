import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { operatorHeaders } from '../operator-key.ts';
import { createProcess, type DrillRelay, END_WITH_PARENT, freePort } from './process.ts';

/** The program of the build to which this file belongs. */
const PROGRAM = fileURLToPath(new URL('./svc.js', import.meta.url));

/** `svc relay start` of the same build, whose home is in `folder`: it reads and writes nothing of this user. */
export async function createNodeRelay(folder: string, path: string): Promise<DrillRelay> {
  const home = join(folder, 'home');
  const temporary = join(folder, 'tmp');
  await Promise.all([home, temporary].map((directory) => mkdir(directory, { mode: 0o700 })));
  const port = await freePort();
  const { start, kill } = createProcess({
    args: [
      ...END_WITH_PARENT,
      PROGRAM,
      'relay',
      'start',
      '--host',
      '127.0.0.1',
      '--port',
      String(port),
      '--no-secure-link',
    ],
    env: {
      PATH: path,
      HOME: home,
      SVC_HOME: home,
      TMPDIR: temporary,
      LANG: 'C.UTF-8',
      // A shell outlives the relay only in tmux, which drops the output that nobody sees.
      RELAY_TERMINAL_TMUX: '0',
      // Nothing listens there: a drill calls no release feed.
      RELAY_UPDATE_FEED_URL: 'http://127.0.0.1:1/',
    },
    port,
  });
  return { port, hasShell: true, isMediaDurable: false, operator: () => operatorHeaders(home, port), start, kill };
}
