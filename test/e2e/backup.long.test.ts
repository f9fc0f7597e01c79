import { createECDH } from 'node:crypto';
import { existsSync, watch } from 'node:fs';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { StoredRow } from '../../storage/sql-driver.ts';
import { TIMEOUT } from '../support/limits.ts';
import { freePort, launch, runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';

const PROGRAM = new URL('../../dist/cli/svc.js', import.meta.url).pathname;
/** Of a tool of this machine. */
const OPERATOR = { headers: { 'x-svc-operator': '1' } };
const PASSPHRASE = 'correct horse battery';

/** The environment of `runSvc`, for commands that are killed. */
const begin = (words: string[], home: string) =>
  launch(process.execPath, [PROGRAM, ...words], { PATH: process.env.PATH ?? '', HOME: home, SVC_HOME: home });

async function passphraseFile(home: string): Promise<string[]> {
  await writeFile(join(home, 'pw'), `${PASSPHRASE}\n`);
  return ['--passphrase-file', join(home, 'pw')];
}

const json = async (words: string[], home: string) => {
  const result = await runSvc([...words, '--json'], { home });
  return { code: result.code, ...JSON.parse(result.stdout) };
};

type Relay = Awaited<ReturnType<typeof startRelayProcess>>;

/** Pairs over the socket: the payload of `auth.ok`, with the device's id. */
async function pairDevice(relay: Relay, code: string, policy: object = {}) {
  const registered = await relay.ask('/pairing/register', { method: 'POST', body: { code, ...policy } });
  expect(registered.status, registered.text).toBe(200);
  const device = { device_id: `device-${code}`, device_name: `Device ${code}` };
  const { frame, socket } = await relay.offer({ pairing_code: code, ...device });
  socket.terminate();
  expect(frame.type).toBe('auth.ok');
  const { session_token: token, refresh_token: refresh } = frame.payload as Record<string, string>;
  return { ...device, token: token as string, refresh: refresh as string };
}

/** Each case runs dozens of commands, which sync files. */
const MINUTES = 300_000;

describe('svc backup and restore (contract 11 §3)', { timeout: MINUTES }, () => {
  it('a restored home behaves like the old one, for every kind of credential', async () => {
    const env = {
      RELAY_SECURE_LINK_HOST: '127.0.0.1',
      RELAY_SECURE_LINK_PORT: String(await freePort()),
      PATH: process.env.PATH ?? '',
    };
    const home = await temporaryHome();
    // The settings are the home's own: the other home knows them by the backup alone.
    const settings =
      'RELAY_SECURE_LINK_ENABLED=1\nRELAY_REQUIRE_OPERATOR_KEY=0\nRELAY_PUSH_CONTACT=mailto:a@example.com\n';
    await writeFile(join(home, '.env'), settings);
    const relay = await startRelayProcess({ home, env });
    const seeds = [1, 2, 3, 4, 5, 6];
    const policies = seeds.map(
      (seed) =>
        [
          {},
          { ttl_seconds: 86_400, grants: { bridge: 1800, terminal: 0 } },
          { ttl_seconds: 0 },
          { without: ['terminal', 'files'] },
        ][seed % 4] as object,
    );
    const devices = await Promise.all(seeds.map((seed, at) => pairDevice(relay, `ABC${seed}0${at}`, policies[at])));
    const [first, revoked, refreshed] = devices as [(typeof devices)[0], (typeof devices)[0], (typeof devices)[0]];
    expect((await runSvc(['devices', 'revoke', revoked.token.slice(0, 8), '--yes'], { home })).code).toBe(0);
    expect((await runSvc(['devices', 'rename', first.token.slice(0, 8), 'Mine'], { home })).code).toBe(0);
    const again = await relay.offer({ refresh_token: refreshed.refresh, device_id: refreshed.device_id });
    again.socket.terminate();
    const renewed = again.frame.payload as Record<string, string>;
    expect((await runSvc(['mcp', 'pair', '--yes'], { home })).code).toBe(0);
    expect((await runSvc(['phone', 'send', 'Dinner is ready'], { home })).code).toBe(0);
    expect((await runSvc(['freeze', 'away'], { home })).code).toBe(0);
    expect((await runSvc(['relay', 'operator-token', '--public-key'], { home })).code).toBe(0);
    const browser = createECDH('prime256v1');
    const subscribed = await relay.ask('/push/subscribe', {
      method: 'POST',
      headers: { authorization: `Bearer ${first.token}` },
      body: {
        endpoint: 'https://fcm.googleapis.com/fcm/send/x',
        keys: { p256dh: browser.generateKeys('base64url'), auth: 'A'.repeat(22) },
      },
    });
    expect(subscribed.status, subscribed.text).toBe(200);

    /** Everything by which somebody could tell two relays apart. */
    async function behaviour(of: Relay, at: string) {
      const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });
      const statuses = await Promise.all(
        [...devices.map(({ token }) => token), renewed.session_token as string].map(
          async (token) => (await of.ask('/sessions', bearer(token))).status,
        ),
      );
      const own = (await of.ask('/sessions', { headers: { 'x-svc-operator': '1' } })).json.sessions;
      const key = await readFile(join(at, 'svc-relay/operator-key'), 'utf8');
      const link = (await of.ask('/health')).json;
      const minted = await of.ask('/pairing/mint', { method: 'POST', body: { host: '127.0.0.1', port: 8642 } });
      return {
        statuses,
        // `last_seen` moves with each call.
        sessions: own.map(({ last_seen: _, ...row }: Record<string, unknown>) => row),
        key,
        pin: link.secure_proxy,
        vapid: (await of.ask('/push/key', bearer(first.token))).json,
        subscriptions: (await of.ask('/push/status')).json,
        qr: typeof minted.json.qr_payload,
        queue: (await json(['phone', 'list'], at)).messages.map(({ text }: { text: string }) => text),
        history: await json(['phone', 'history'], at),
        ended: await json(['devices', '--ended'], at),
        frozen: (await of.ask('/relay/info')).json.freeze,
        mcp: (await runSvc(['mcp', 'list'], { home: at })).stdout,
        publicKey: (await runSvc(['relay', 'operator-token', '--public-key'], { home: at })).stdout,
        settings: await readFile(join(at, '.env'), 'utf8'),
        secret: (await readFile(join(at, 'svc-relay-qr-secret'))).toString('hex'),
      };
    }
    await relay.ask('/pairing/mint', { method: 'POST', body: {} });
    const pw = await passphraseFile(home);
    const file = join(home, 'relay.svc');
    const before = await behaviour(relay, home);
    expect(before.statuses).toEqual([200, 401, 401, 200, 200, 200, 200]);
    expect(before).toMatchObject({
      frozen: { reason: 'away' },
      queue: ['Dinner is ready'],
      pin: { proxy: { pin_sha256: expect.stringMatching(/^sha256/) } },
      subscriptions: { subscriptions: 1 },
    });
    const made = await json(['backup', file, ...pw], home);
    expect(made).toMatchObject({ code: 0, ok: true, encrypted: true, devices: 6, left_out: [] });
    await relay.kill('SIGTERM');

    const other = await temporaryHome();
    expect(await json(['restore', file, ...pw], other)).toMatchObject({ code: 0, ok: true, devices: 6 });
    const restored = await startRelayProcess({ home: other, port: relay.port, env });
    expect(await behaviour(restored, other)).toEqual(before);
    // A refresh token works on, once.
    const next = await restored.offer({ refresh_token: renewed.refresh_token, device_id: refreshed.device_id });
    next.socket.terminate();
    expect(next.frame.type).toBe('auth.ok');
    const dead = await restored.offer({ refresh_token: revoked.refresh, device_id: revoked.device_id });
    dead.socket.terminate();
    expect(dead.frame.type).toBe('auth.fail');
  });

  it('while 100 operations a second run, what it holds is of one moment', async () => {
    const relay = await startRelayProcess();
    const pw = await passphraseFile(relay.home);
    let isOver = false;
    const answered: string[] = [];
    const work = (async () => {
      for (let count = 0; !isOver; count++) {
        const text = `m${count}`;
        const answer = await relay.ask('/phone/message', { method: 'POST', body: { text } }).catch(() => undefined);
        if (answer?.status === 200 || answer?.status === 202) answered.push(text);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    })();
    // Pairings of agents change a file and the state.
    const pairing = (async () => {
      while (!isOver) await runSvc(['mcp', 'pair', '--yes'], { home: relay.home });
    })();
    for (let round = 0; round < 4; round++) {
      // On a busy machine a backup can be faster than the first answer, and would prove nothing.
      const count = answered.length;
      await expect.poll(() => answered.length, { timeout: TIMEOUT }).toBeGreaterThan(count);
      const before = [...answered];
      const file = join(relay.home, `${round}.svc`);
      const made = await runSvc(['backup', file, ...pw, '--json'], { home: relay.home });
      expect([made.code, made.stderr]).toEqual([0, '']);
      const other = await temporaryHome();
      expect((await json(['restore', file, ...pw], other)).code).toBe(0);
      const restored = await startRelayProcess({ home: other });
      const texts = new Set<string>();
      for (let since = 0; ; ) {
        const { items } = (await restored.ask(`/phone/history?since=${since}&limit=50`, OPERATOR)).json;
        if (items.length === 0) break;
        for (const { seq, text } of items) {
          texts.add(text);
          since = Math.max(since, seq);
        }
      }
      const numberOf = (text: string) => Number(text.slice(1));
      const last = Math.max(...[...texts].map(numberOf));
      expect(last).toBeGreaterThanOrEqual(Math.max(...before.map(numberOf)));
      // The history keeps 500: all of the last 500 are there, however many came while the backup began.
      expect(before.filter((text) => numberOf(text) > last - 500 && !texts.has(text))).toEqual([]);
      // Devices know higher numbers than the backup has: what is new in the restored history is above them.
      const latestOf = async ({ ask }: typeof relay) => (await ask('/phone/history?limit=1', OPERATOR)).json.latest;
      const known = await latestOf(relay);
      await restored.ask('/phone/message', { method: 'POST', body: { text: 'after the restore' } });
      expect(await latestOf(restored)).toBeGreaterThan(known);
      // The token of the file is that of a session in the state.
      const list = existsSync(join(other, 'svc-relay/mcp.json'))
        ? (await runSvc(['mcp', 'list'], { home: other })).stdout
        : 'works';
      expect(list).toContain('works');
      await restored.kill();
    }
    isOver = true;
    await Promise.all([work, pairing]);
    expect(answered.length).toBeGreaterThan(100);
    expect((await readdir(join(relay.home, 'svc-relay'))).filter((name) => name.includes('snapshot'))).toEqual([]);
  });

  it('kill -9 of a backup leaves no file, or a whole one', async () => {
    const relay = await startRelayProcess();
    for (let count = 0; count < 30; count++) {
      await relay.ask('/phone/message', { method: 'POST', body: { text: 'x'.repeat(3000) } });
    }
    const pw = await passphraseFile(relay.home);
    const folder = join(relay.home, 'backups');
    await mkdir(folder);
    const whole = await runSvc(['backup', join(folder, 'whole.svc'), ...pw], { home: relay.home });
    expect(whole.code).toBe(0);
    let killed = 0;
    for (let round = 0; round < 16; round++) {
      const file = join(folder, `${round}.svc`);
      const child = begin(['backup', file, ...pw], relay.home);
      // Half of them at random, half as soon as something is written there.
      const watcher = round % 2 === 0 ? watch(folder, () => child.signal('SIGKILL')) : undefined;
      const timer = round % 2 === 1 ? setTimeout(() => child.signal('SIGKILL'), 50 + 30 * round) : undefined;
      const { signal } = await child.ended;
      watcher?.close();
      clearTimeout(timer);
      if (signal === 'SIGKILL') killed++;
      if (!existsSync(file)) continue;
      const other = await temporaryHome();
      expect((await json(['restore', file, ...pw], other)).code).toBe(0);
    }
    expect(killed).toBeGreaterThan(4);
    // The next one takes away what they have left.
    expect((await runSvc(['backup', join(folder, 'last.svc'), ...pw], { home: relay.home })).code).toBe(0);
    expect((await readdir(folder)).filter((name) => name.endsWith('.tmp'))).toEqual([]);
    expect(
      (await readdir(join(relay.home, 'svc-relay'))).filter((name) => name.includes('snapshot')).length,
    ).toBeLessThan(4);
  });

  it('kill -9 of a restore leaves the old home or the new one, and the next command ends it', async () => {
    const [oldHome, newHome] = [await temporaryHome(), await temporaryHome()];
    const backups: string[] = [];
    /** A home without what makes each backup another one. */
    const contentOf = async (home: string) => {
      const file = join(home, 'look.svc');
      const made = await runSvc(['backup', file, '--plain', '--yes', '--force'], { home });
      expect([made.code, made.stderr]).toEqual([0, '']);
      const bytes = await readFile(file);
      await rm(file);
      const [, ...lines] = gunzipSync(bytes.subarray(bytes.indexOf(10) + 1))
        .toString('utf8')
        .trim()
        .split('\n');
      const parts: unknown[] = lines.slice(0, -1).flatMap((line) => {
        const part = JSON.parse(line);
        // When it was restored last is new each time.
        return part.rows?.filter(([store]: StoredRow) => store !== 'restored') ?? part;
      });
      return parts.map((part) => JSON.stringify(part));
    };
    const contents: string[][] = [];
    const pw = await passphraseFile(oldHome);
    for (const [at, home] of [oldHome, newHome].entries()) {
      await writeFile(join(home, '.env'), `NUMBER=${at}\n`);
      const relay = await startRelayProcess({ home });
      for (let count = 0; count <= at; count++) {
        await relay.ask('/phone/message', { method: 'POST', body: { text: `of ${at}` } });
      }
      await runSvc(['mcp', 'pair', '--yes'], { home });
      await relay.ask('/pairing/mint', { method: 'POST', body: {} });
      await relay.kill('SIGTERM');
      const file = join(oldHome, `${at}.svc`);
      expect((await runSvc(['backup', file, ...pw], { home })).code).toBe(0);
      backups.push(file);
      contents.push(await contentOf(home));
    }
    expect(contents[0]).not.toEqual(contents[1]);
    const home = await temporaryHome();
    expect((await json(['restore', backups[0] as string, ...pw], home)).code).toBe(0);
    const outcomes = { old: 0, new: 0, decided: 0 };
    for (let round = 0; round < 24; round++) {
      const wanted = (round + 1) % 2;
      const child = begin(['restore', backups[wanted] as string, ...pw, '--replace', '--yes'], home);
      // As soon as it is decided and a little later; or at any time.
      const journal = join(home, 'svc-relay/restoring/journal.json');
      const isTimed = round % 3 === 2;
      const deadline = performance.now() + (isTimed ? 100 + round * 15 : TIMEOUT);
      while (child.running() && !existsSync(journal) && performance.now() < deadline) {
        await new Promise((resolve) => setImmediate(resolve));
      }
      const late = performance.now() + (isTimed ? 0 : round % 6);
      while (performance.now() < late) await new Promise((resolve) => setImmediate(resolve));
      await child.kill('SIGKILL');
      if (existsSync(journal)) outcomes.decided++;
      const is = await contentOf(home);
      expect([contents[0], contents[1]]).toContainEqual(is);
      const isNew = JSON.stringify(is) === JSON.stringify(contents[wanted]);
      outcomes[isNew ? 'new' : 'old']++;
      expect(existsSync(journal)).toBe(false);
      // For the next round the home is the wanted one in either case.
      if (!isNew)
        expect((await runSvc(['restore', backups[wanted] as string, ...pw, '--replace', '--yes'], { home })).code).toBe(
          0,
        );
    }
    expect(outcomes.new).toBeGreaterThan(0);
    expect(outcomes.old).toBeGreaterThan(0);
    expect(outcomes.decided).toBeGreaterThan(0);
  });
});
