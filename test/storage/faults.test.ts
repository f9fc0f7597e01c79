import { expect, it, type TestContext, vi } from 'vitest';
import { launch, type RelayProcess, startRelayProcess } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';

const pairDevice = async (relay: RelayProcess) => {
  const code = randomCode();
  await relay.ask('/pairing/register', { method: 'POST', body: { code } });
  const { frame, socket } = await relay.offer({ pairing_code: code, device_id: crypto.randomUUID() });
  socket.terminate();
  expect(frame.type).toBe('auth.ok');
  return frame.payload.session_token as string;
};

const stateOf = async (relay: RelayProcess) => (await relay.ask('/health')).json.readiness.checks.session_store;
const statusOf = async (relay: RelayProcess, token: string) =>
  (await relay.ask('/sessions', { headers: { authorization: `Bearer ${token}` } })).status;

/** Lets every fsync of a running process fail from now on. Returns the end of it, or skips where that cannot be done. */
async function breakDisk(context: TestContext, pid: number): Promise<() => Promise<void>> {
  const calls = 'fsync,fdatasync';
  const tracer = launch(
    'strace',
    ['-f', '-p', String(pid), '-e', `trace=${calls}`, '-e', `inject=${calls}:error=EIO`],
    {
      PATH: process.env.PATH ?? '',
    },
  );
  try {
    await tracer.prints(/attached/);
  } catch (error) {
    context.skip(`FAULT INJECTION NOT TESTED: strace cannot attach here: ${error}`);
  }
  return async () => {
    await tracer.kill('SIGINT');
  };
}

it('01 §6.7: a disk that fails to sync makes the relay degraded, not dead; what was saved before and after holds', async (context) => {
  const relay = await startRelayProcess();
  const before = await pairDevice(relay);
  expect(await stateOf(relay)).toBe('ok');

  const repair = await breakDisk(context, relay.child.pid);
  const during = await pairDevice(relay);
  expect(await stateOf(relay)).toBe('degraded');
  await vi.waitFor(() => expect(relay.child.stderr).toMatch(/\[WARNING\] sessions: .*could not be saved/));
  // The change stands in memory, and a revocation is one too.
  expect(await statusOf(relay, during)).toBe(200);
  const revoked = await relay.ask(`/sessions/${during.slice(0, 8)}`, {
    method: 'DELETE',
    headers: { authorization: `Bearer ${during}` },
  });
  expect(revoked.status).toBe(200);
  expect(await statusOf(relay, during)).toBe(401);
  expect(await statusOf(relay, before)).toBe(200);

  await repair();
  const after = await pairDevice(relay);
  expect(await stateOf(relay)).toBe('ok');
  await relay.restart();
  expect(await statusOf(relay, before)).toBe(200);
  expect(await statusOf(relay, after)).toBe(200);
  expect(relay.output).not.toMatch(/damaged|\[ERROR\]/);
});

it('01 §9.2: it ends when told to also while the disk fails, and loses nothing that was saved', async (context) => {
  const relay = await startRelayProcess();
  const before = await pairDevice(relay);
  const repair = await breakDisk(context, relay.child.pid);
  await pairDevice(relay);
  expect(await stateOf(relay)).toBe('degraded');
  const began = performance.now();
  const { signal } = await relay.kill('SIGTERM');
  expect(performance.now() - began).toBeLessThan(5_000);
  expect(signal).toBeNull();
  expect(relay.child.stderr).not.toMatch(/^\s+at |node:internal/m);
  await repair();
  await relay.restart();
  expect(await statusOf(relay, before)).toBe(200);
  expect(await stateOf(relay)).toBe('ok');
});
