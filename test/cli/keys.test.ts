import { chmod, chown, mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { signPayload } from '../../lib/pairing/signature.ts';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome, run } from '../support/cli.ts';
import { canBeNobody, NOBODY } from '../support/other-user.ts';
import { authenticate } from '../support/relay.ts';

const pending = cleanups();

/** A relay for which only the operator key counts. */
async function relay() {
  const target = await startBuiltTarget({ env: { RELAY_REQUIRE_OPERATOR_KEY: '1' } });
  pending.push(() => target.stop());
  const home = target.relay.config.agentHome;
  const env = { SVC_HOME: home, RELAY_PORT: String(target.port) };
  const keyOf = () => readFile(join(home, 'svc-relay/operator-key'), 'utf8');
  const statusOf = async (key: string) =>
    (await target.fetch('/relay/log', { headers: { 'x-svc-operator-key': key } })).status;
  return { target, home, keyOf, statusOf, svc: (...words: string[]) => run(words, { env }) };
}

it('svc relay operator-key rotate: the old key is refused at once, no device pairs anew (11 §3)', async () => {
  const { home, keyOf, statusOf, svc } = await relay();
  const old = await keyOf();
  expect(await statusOf(old)).toBe(200);
  const status = await svc('relay', 'operator-key');
  expect([status.code, status.stdout]).toEqual([
    0,
    expect.stringMatching(/This machine: made on \d{4}-\d\d-\d\d, .*operator-key\n/),
  ]);
  expect(status.stdout).not.toContain(old);
  const rotated = await svc('relay', 'operator-key', 'rotate');
  expect([rotated.code, rotated.stdout]).toEqual([
    0,
    expect.stringMatching(/No device has to pair again\.\n.*refused from now on/),
  ]);
  const fresh = await keyOf();
  expect(fresh).not.toBe(old);
  expect(rotated.stdout).not.toContain(fresh);
  expect([await statusOf(old), await statusOf(fresh)]).toEqual([403, 200]);
  expect((await stat(join(home, 'svc-relay/operator-key'))).mode & 0o777).toBe(0o600);
  const json = await svc('relay', 'operator-key', 'rotate', '--json');
  expect(JSON.parse(json.stdout)).toEqual({
    ok: true,
    rotated: join(home, 'svc-relay/operator-key'),
    devices_to_pair: [],
    restart: false,
  });
  expect([await statusOf(fresh), await statusOf(await keyOf())]).toEqual([403, 200]);
  // Commands go on with the new one.
  expect((await svc('phone', 'list')).code).toBe(0);
});

it('svc relay qr-key rotate: codes are signed with the new key at once (11 §3)', async () => {
  const { target, home, keyOf, svc } = await relay();
  const mint = async () => {
    const init = { method: 'POST', body: '{}', headers: { 'x-svc-operator-key': await keyOf() } };
    const { code, qr_payload: text } = await (await target.fetch('/pairing/mint', init)).json();
    const payload = JSON.parse(text);
    const secret = new Uint8Array(await readFile(join(home, 'svc-relay-qr-secret')));
    const credentials = { pairing_code: code, pairing_secret: payload.relay.secret };
    return { isSigned: payload.sig === signPayload(payload, secret), secret, credentials };
  };
  const before = await mint();
  const unseen = await mint();
  const rotated = await svc('relay', 'qr-key', 'rotate');
  expect([rotated.code, rotated.stdout]).toEqual([
    0,
    expect.stringMatching(
      /No paired device has to pair again\.\n2 unused codes from before are withdrawn: they pair nothing\.\nNext: svc pair\n$/,
    ),
  ]);
  const after = await mint();
  expect([before.isSigned, after.isSigned]).toEqual([true, true]);
  expect(after.secret).not.toEqual(before.secret);
  // What was minted before pairs nothing, however often it is shown; what came after does.
  const pairWith = async ({ credentials }: typeof before) => (await authenticate(target, credentials)).frame;
  for (const old of [before, before, unseen]) {
    expect((await pairWith(old)).payload).toEqual({ reason: 'Invalid pairing code or session token' });
  }
  expect((await pairWith(after)).type).toBe('auth.ok');
  const again = await svc('relay', 'qr-key', 'rotate', '--json');
  expect(JSON.parse(again.stdout)).toMatchObject({ ok: true, devices_to_pair: [], withdrawn: 0, restart: false });
  const status = JSON.parse((await svc('relay', 'qr-key', '--json')).stdout);
  expect(status).toEqual({ ok: true, path: join(home, 'svc-relay-qr-secret'), made_at: expect.any(Number) });
});

it('svc relay operator-key rotate --edge replaces the key pair, and says what to deploy', async () => {
  const home = agentHome();
  const svc = (...words: string[]) => run(words, { env: { SVC_HOME: home } });
  const before = (await svc('relay', 'operator-token', '--public-key')).stdout.trim();
  const rotated = await svc('relay', 'operator-key', 'rotate', '--edge');
  const after = (await svc('relay', 'operator-token', '--public-key')).stdout.trim();
  expect(after).not.toBe(before);
  expect([rotated.code, rotated.stdout]).toEqual([
    0,
    expect.stringContaining(`RELAY_OPERATOR_PUBLIC_KEY = "${after}"`),
  ]);
  expect(rotated.stdout).not.toContain('PRIVATE');
});

it('a key that cannot be replaced stays, and the command says why', async () => {
  const home = agentHome();
  const svc = (...words: string[]) => run(words, { env: { SVC_HOME: home } });
  await writeFile(join(home, 'svc-relay'), 'in the way');
  const refused = await svc('relay', 'operator-key', 'rotate', '--json');
  expect([refused.code, JSON.parse(refused.stdout)]).toEqual([
    1,
    {
      ok: false,
      error: expect.stringContaining('cannot be replaced'),
      next: 'Run this as the user that runs the relay.',
    },
  ]);
  expect((await svc('relay', 'operator-key', 'replace')).code).toBe(2);
  expect((await svc('relay', 'operator-key', '--edge')).code).toBe(2);
});

it.skipIf(!canBeNobody)('the key of another user is not replaced by one that its relay could not read', async () => {
  const home = agentHome();
  await mkdir(join(home, 'svc-relay'));
  const path = join(home, 'svc-relay/operator-key');
  await writeFile(path, 'k'.repeat(43), { mode: 0o600 });
  await chmod(home, 0o755);
  await chown(path, NOBODY, NOBODY);
  const refused = await run(['relay', 'operator-key', 'rotate'], { env: { SVC_HOME: home } });
  expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining(`it belongs to user ${NOBODY}`)]);
  expect(await readFile(path, 'utf8')).toBe('k'.repeat(43));
});
