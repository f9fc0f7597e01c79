// A TUI gateway for tests: a real process that speaks JSON-RPC, one line per message. Its arguments select permanent
// misbehaviour (`mute`, `ignore-term`, `grandchild`), its methods single actions.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync } from 'node:fs';
import { createInterface } from 'node:readline';

const modes = new Set(process.argv.slice(2));
const { stdin, stdout, stderr } = process;

const write = async (text) => {
  if (!stdout.write(text)) await once(stdout, 'drain');
};
const reply = (id, result) => write(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`);
const event = (type, payload) => write(`${JSON.stringify({ method: 'event', params: { type, payload } })}\n`);

/** A process in the same group that outlives its parent unless it is killed, and does not hold its pipes. */
const grandchild = (stubborn) => {
  const ignoring = stubborn ? `process.on('SIGTERM', () => {});` : '';
  const program = `${ignoring} process.send('up'); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] });
  return once(child, 'message').then(() => {
    child.disconnect();
    return child.pid;
  });
};

const methods = {
  /** Exits after writing everything, with `tail` not followed by a newline. */
  exit: async ({ code, tail = '' }) => {
    await new Promise((resolve) => stdout.write(tail, resolve));
    process.exit(code);
  },
  die: ({ signal }) => process.kill(process.pid, signal),
  raw: async ({ text, base64 }) => write(base64 ? Buffer.from(base64, 'base64') : text),
  /** Numbered lines. */
  burst: async ({ count, size = 0 }) => {
    const filling = 'x'.repeat(size);
    for (let n = 0; n < count; n++) {
      await event('n', { n, filling });
      if (size > 0 && n % 16 === 15) stderr.write(`written ${n + 1}\n`);
    }
  },
  /** One line of the given length in bytes. */
  huge: async ({ bytes }) => {
    const around = JSON.stringify({ method: 'event', params: { type: 'huge', payload: '' } });
    await write(`${around.replace('""', `"${'x'.repeat(bytes - around.length)}"`)}\n`);
  },
  /** A conversation as the agent's own gateway has it. */
  'session.create': (_params, id) => reply(id, { session_id: 's1' }),
  'session.list': (_params, id) => reply(id, { sessions: [{ id: 's0', title: 'Yesterday' }] }),
  'session.resume': ({ session_id }, id) => reply(id, { session_id }),
  'session.interrupt': (_params, id) => reply(id, { status: 'interrupted' }),
  'prompt.submit': async ({ session_id, text }, id) => {
    await event('tool.start', { name: 'look', context: text });
    for (const part of [`In ${session_id}: `, 'you said ', `"${text}"`]) await event('message.delta', { text: part });
    if (text !== 'endless') await event('message.complete', { text });
    await reply(id, { status: 'streaming' });
  },
  noise: async ({ text }) => void stderr.write(text),
  measure: async ({ data }, id) => write(`${JSON.stringify({ id, result: data.length })}\n`),
  /** Stops reading forever. */
  stall: async (_params, id) => {
    lines.pause();
    setInterval(() => {}, 1000);
    await write(`${JSON.stringify({ id, result: 'stalled' })}\n`);
  },
  deaf: async (_params, id) => {
    closeSync(0);
    await write(`${JSON.stringify({ id, result: 'deaf' })}\n`);
    setInterval(() => {}, 1000);
  },
};

if (modes.has('ignore-term')) process.on('SIGTERM', () => {});
if (modes.has('ignore-term')) setInterval(() => {}, 1000);
if (!modes.has('mute')) {
  const { env } = process;
  const payload = { pid: process.pid, cwd: process.cwd(), args: process.argv.slice(2), env };
  if (modes.has('grandchild')) payload.grandchild = await grandchild(modes.has('ignore-term'));
  await event('gateway.ready', payload);
}

let last = Promise.resolve();
const lines = createInterface({ input: stdin });
lines.on('line', (line) => {
  last = last.then(async () => {
    const { id, method, params } = JSON.parse(line);
    if (Object.hasOwn(methods, method)) await methods[method](params ?? {}, id);
    else await write(`${JSON.stringify({ jsonrpc: '2.0', id, result: line })}\n`);
  });
});
