import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { agentHome, run } from '../support/cli.ts';
import { connect } from '../support/client.ts';
import { closedPort } from '../support/closed-port.ts';
import { type EdgeRuntime, startEdgeRuntime } from '../support/edge-runtime.ts';
import { bearer } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

describe('commands with --relay (contract 01 §12)', () => {
  let runtime: EdgeRuntime;
  let env: Record<string, string>;
  let url: string;
  beforeAll(async () => {
    env = { SVC_HOME: await mkdtemp(join(tmpdir(), 'svc-cli-')), API_SERVER_KEY: 'key-of-this-machine' };
    const { stdout: key } = await run(['relay', 'operator-token', '--public-key'], { env });
    runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: key.trim(), RELAY_HOSTS: '' });
    url = runtime.origin('127.0.0.1');
  });
  afterAll(async () => {
    await runtime?.stop();
    await rm(env.SVC_HOME as string, { recursive: true, force: true });
  });

  const linkOf = (stdout: string) => {
    const [, encoded = ''] = /svc-relay:\/\/pair\?payload=([\w-]+)/.exec(stdout) ?? [];
    return JSON.parse(Buffer.from(encoded, 'base64url').toString());
  };

  test('svc pair: one command from nothing to a paired phone, with a QR code', async () => {
    const words = ['pair', '--relay', url, '--ttl', '7d', '--only', 'chat', '--no-wait'];
    const { code, stdout, stderr } = await run(words, { env, tty: true, columns: 100, rows: 60, portTaken: true });
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/[▀▄█]{10}/);
    const payload = linkOf(stdout);
    expect(payload.relay.url).toBe(url.replace('http', 'ws'));
    expect(JSON.stringify(payload)).not.toContain('key-of-this-machine');
    expect(payload).not.toHaveProperty('endpoints');

    const phone = await connect(`${payload.relay.url}/ws`);
    phone.send('system', 'auth', { pairing_code: payload.relay.code, device_id: 'd1', device_name: 'Phone' });
    const ok = await phone.next({ type: 'auth.ok' });
    expect(Object.keys(ok.payload.grants as object)).toEqual(['chat']);
    phone.close();
  });

  test('svc pair --host: names that API server, with its key', async () => {
    const { code, stdout } = await run(['pair', '--relay', url, '--host', 'agent.example'], { env });
    expect(code).toBe(0);
    expect(linkOf(stdout)).toMatchObject({ host: 'agent.example', key: 'key-of-this-machine' });
  });

  test('svc pair --token and --register-code', async () => {
    const { code, stdout, stderr } = await run(['pair', '--relay', url, '--token', '--name', 'curl'], { env });
    expect([code, stderr]).toEqual([0, '']);
    expect((await fetch(`${url}/sessions`, { headers: bearer(stdout.trim()) })).status).toBe(200);

    const registered = await run(['pair', '--relay', url, '--register-code', 'ABC123'], { env });
    expect(registered.code).toBe(0);
    expect(registered.stdout).toContain(url);
  });

  test('svc phone send, list, cancel', async () => {
    const phone = async (...words: string[]) => {
      const { code, stdout, stderr } = await run(['phone', ...words, '--relay', url, '--json'], { env });
      expect([code, stderr]).toEqual([0, '']);
      return JSON.parse(stdout);
    };
    const sent = await phone('send', 'Dinner is ready');
    expect(sent).toMatchObject({ delivered: false, buffered: 1 });
    expect((await phone('list')).messages).toMatchObject([{ message_id: sent.message_id, text: 'Dinner is ready' }]);
    expect(await phone('cancel', sent.message_id)).toEqual({ cancelled: 1 });
  });

  test('svc devices list, reduce, revoke', async () => {
    const { stdout: token } = await run(['pair', '--relay', url, '--token', '--name', 'lost'], { env });
    const { code, stdout } = await run(['devices', '--relay', url], { env });
    expect([code, stdout]).toEqual([0, expect.stringMatching(/\nlost +\w+ +offline \d+ s +- +[0-9a-f]{8} /)]);
    const reduced = await run(['devices', 'reduce', 'lost', '--ttl', '1h', '--relay', url, '--json'], { env });
    expect([reduced.code, JSON.parse(reduced.stdout)]).toMatchObject([0, { ok: true }]);
    expect((await run(['devices', 'revoke', 'lost', '--yes', '--relay', url], { env })).code).toBe(0);
    expect((await fetch(`${url}/sessions`, { headers: bearer(token.trim()) })).status).toBe(401);
  });

  test('svc voice say, doctor, transcribe', async () => {
    const folder = await temporaryDirectory({ 'note.wav': 'x' });
    const out = join(folder, 'tone.wav');
    const said = await run(['voice', 'say', 'Hello', '--provider', 'stub', '--out', out, '--relay', url], { env });
    expect([said.code, said.stdout]).toEqual([0, expect.stringContaining('0.3 s of speech (stub')]);
    expect((await readFile(out)).length).toBe(44 + 12_000);
    const doctor = await run(['voice', 'doctor', '--provider', 'stub', '--relay', url], { env });
    expect([doctor.code, doctor.stdout]).toEqual([0, expect.stringContaining("with 'npx wrangler secret put'")]);
    expect(doctor.stdout).toMatch(/\[OK\] relay: \d+ ms to the first audio/);
    const text = await run(['voice', 'transcribe', join(folder, 'note.wav'), '--relay', url], { env });
    expect([text.code, text.stdout]).toEqual([1, '']);
    expect(text.stderr).toMatch(/no API key available.*\n.*svc voice doctor --relay http:\/\/\S+\n$/);
    const { stdout } = await run(['devices', '--relay', url, '--json'], { env });
    expect(stdout).not.toContain('svc voice');
  });

  test('svc relay doctor', async () => {
    const { stdout } = await run(['relay', 'doctor', '--relay', url, '--json', '--timeout', '10'], { env });
    const { checks, relay } = JSON.parse(stdout);
    expect(checks).toContainEqual(expect.objectContaining({ id: 'relay-edge', status: 'ok' }));
    expect(relay.info).toMatchObject({ ok: true, status: 200, url: `${url}/relay/info` });
    expect(stdout).not.toMatch(/eyJ|Bearer/);
  });

  test('a machine whose key the relay does not have: exit 1, and what to do', async () => {
    const stranger = { SVC_HOME: agentHome() };
    for (const words of [
      ['pair'],
      ['pair', '--register-code', 'ABC124'],
      ['devices'],
      ['phone', 'list'],
      ['voice', 'doctor'],
    ]) {
      const { code, stdout, stderr } = await run([...words, '--relay', url], { env: stranger });
      expect([code, stdout], words.join(' ')).toEqual([1, '']);
      expect(stderr).toMatch(/HTTP 401.*RELAY_OPERATOR_PUBLIC_KEY.*operator-token --public-key/s);
      expect(stderr).not.toMatch(/eyJ|\n\s+at /);
    }
    const { code, stdout } = await run(['relay', 'doctor', '--relay', url, '--timeout', '10'], { env: stranger });
    expect(code).toBe(1);
    expect(stdout).toMatch(/\[ERROR\] relay-edge: .*401/s);
  });

  test('no relay there: exit 1, never a code of this machine', async () => {
    const dead = `http://127.0.0.1:${await closedPort()}`;
    for (const words of [['pair'], ['pair', '--token'], ['phone', 'send', 'x'], ['voice', 'doctor']]) {
      const { code, stdout, stderr } = await run([...words, '--relay', dead], { env });
      expect([code, stdout], words.join(' ')).toEqual([1, '']);
      expect(stderr).toContain('wrangler deploy');
    }
  });

  test.each([
    [['pair', '--relay', 'http://relay.example']],
    [['pair', '--relay', 'http://x.localhost:8787']],
    [['pair', '--relay', 'https://relay.example/path']],
    [['pair', '--relay', 'https://user:pass@relay.example']],
    [['pair', '--relay', 'relay.example']],
    [['pair', '--relay', 'https://relay.example', '--no-relay']],
    [['pair', '--relay', 'https://relay.example', '--mode', 'lan']],
    [['pair', '--relay', 'https://relay.example', '--public-url', 'https://a.example']],
    [['phone', 'list', '--relay', 'http://192.168.1.9:8767']],
    [['relay', 'doctor', '--relay', 'https://relay.example', '--relay-port', '1']],
  ])('%j: exit 2', async (words) => {
    const { code, stdout, stderr } = await run(words, { env });
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(/^error: .*--/);
  });
});
