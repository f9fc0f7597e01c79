import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { onTestFinished } from 'vitest';

/** The account `nobody`. */
export const NOBODY = 65_534;

/** Only root can act as another account. */
export const canBeNobody = process.geteuid?.() === 0;
if (!canBeNobody) process.stderr.write('SKIPPED: only root can attack as another user of this host\n');

const FORWARDER = `
  const { connect, createServer } = require('node:net');
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const far = connect({ host: '127.0.0.1', port: Number(process.argv[1]), allowHalfOpen: true });
    near.pipe(far).pipe(near);
    near.on('error', () => far.destroy()).on('close', () => far.destroy());
    far.on('error', () => near.destroy()).on('close', () => near.destroy());
  });
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));
`;

/**
 * Starts a process of another account that forwards connections to a local port, as a proxy does that adds no header,
 * and returns its port. Ends with the test.
 */
export async function forwardAsNobody(port: number): Promise<number> {
  const child = spawn(process.execPath, ['-e', FORWARDER, String(port)], {
    uid: NOBODY,
    gid: NOBODY,
    cwd: '/',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await closed;
  });
  const [printed] = await once(child.stdout, 'data');
  return Number(String(printed));
}

/** Sends bytes as another account and hangs up, all before a relay in this process can look at it. */
export function fireAsNobody(port: number, bytes: Buffer): void {
  const script = 'exec 3<>"/dev/tcp/127.0.0.1/$0" && cat >&3';
  const { status, stderr } = spawnSync('bash', ['-c', script, String(port)], {
    uid: NOBODY,
    gid: NOBODY,
    cwd: '/',
    input: bytes,
  });
  if (status !== 0) throw new Error(`the attacking process ended with ${status}: ${stderr}`);
}

const SQUATTER = `
  const { createServer } = require('node:net');
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => {
      process.stdout.write(data);
      const body = process.argv[3];
      socket.end('HTTP/1.1 200 OK\\r\\ncontent-length: ' + body.length + '\\r\\nconnection: close\\r\\n\\r\\n' + body);
    });
  });
  server.on('error', (error) => { console.error(error.message); process.exit(1); });
  server.listen(Number(process.argv[2]), process.argv[1], () => console.log('listening ' + server.address().port));
`;

export interface Squatter {
  pid: number;
  port: number;
  /** Everything that was sent to it so far. */
  heard(): string;
}

/** Starts a process of another account that listens on an address and answers every request with JSON. Ends with the test. */
export async function squatAsNobody(host: string, port = 0, answer: object = {}): Promise<Squatter> {
  const child = spawn(process.execPath, ['-e', SQUATTER, host, String(port), JSON.stringify(answer)], {
    uid: NOBODY,
    gid: NOBODY,
    cwd: '/',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await closed;
  });
  let heard = '';
  const [first] = await Promise.race([
    once(child.stdout, 'data'),
    closed.then(() => Promise.reject(new Error(`nobody cannot listen on ${host}:${port}`))),
  ]);
  child.stdout.on('data', (data) => {
    heard += data;
  });
  return { pid: child.pid as number, port: Number(/listening (\d+)/.exec(String(first))?.[1]), heard: () => heard };
}
