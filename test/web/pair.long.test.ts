import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connected, PLAIN } from '../support/app.ts';
import { describeInBrowser, expectAccessible, ROUTED, smallTargets } from '../support/browser.ts';
import { qrVideo } from '../support/qr-video.ts';
import {
  attemptFrom,
  authenticate,
  BEHIND_PROXY,
  post,
  randomCode,
  registerCode,
  startNodeTarget,
  type Target,
} from '../support/relay.ts';

/** The code before the camera. */
const SEEN = 'CAM123';
const folder = mkdtempSync(join(tmpdir(), 'svc-relay-camera-'));
const video = join(folder, 'qr.y4m');
writeFileSync(video, qrVideo(`http://relay.test/app/#code=${SEEN}`));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const ARGS = [
  // A name that is not of this machine makes plain http the insecure tier.
  '--host-resolver-rules=MAP relay.test 127.0.0.1',
  '--use-fake-ui-for-media-stream',
  '--use-fake-device-for-media-stream',
  `--use-file-for-fake-video-capture=${video}`,
];

describeInBrowser(
  'pairing a browser (issue 17)',
  ({ open }) => {
    let relay: Target;
    beforeAll(async () => {
      relay = await startNodeTarget({ env: PLAIN });
    });
    afterAll(() => relay?.stop());

    const app = (host = 'localhost') => `${relay.url.replace('127.0.0.1', host)}/app/`;
    async function newCode(code = randomCode()): Promise<string> {
      await registerCode(relay, code, { without: ['bridge', 'desktop'] });
      return code;
    }

    it('pairs with a typed code after a wrong one', async () => {
      const { page } = await open();
      await page.goto(app());
      const field = page.getByLabel('Pairing code');
      await field.fill('abc');
      await page.getByRole('button', { name: 'Pair' }).click();
      await page.getByText('six letters and digits').waitFor();
      await field.fill('ZZZZ99');
      await page.getByRole('button', { name: 'Pair' }).click();
      await page.getByText('The relay does not accept this code').waitFor();
      await expectAccessible(page);
      expect(await smallTargets(page)).toEqual([]);
      const code = await newCode();
      await field.fill(`${code.slice(0, 3)}-${code.slice(3)}`.toLowerCase());
      await page.keyboard.press('Enter');
      await connected(page);
    });

    it('reads the code before the camera, and frees the camera', async () => {
      const { page } = await open();
      await newCode(SEEN);
      await page.goto(app());
      await page.getByRole('button', { name: 'Scan the code with the camera' }).click();
      await connected(page);
      await expect.poll(() => page.locator('video').count()).toBe(0);
    });

    it('frees the camera when the reader of codes cannot be loaded', async () => {
      const { page, allow } = await open(ROUTED);
      allow(/Failed to load resource/);
      await page.route('**/qr-reader-*.js', (route) => route.abort());
      await page.addInitScript(() => {
        const { mediaDevices } = navigator;
        const getUserMedia = mediaDevices.getUserMedia.bind(mediaDevices);
        mediaDevices.getUserMedia = async (constraints) => {
          const stream = await getUserMedia(constraints);
          Object.assign(globalThis, { camera: stream.getTracks() });
          return stream;
        };
      });
      await page.goto(app());
      await page.getByRole('button', { name: 'Scan the code with the camera' }).click();
      await page.getByText('The camera cannot be used').waitFor();
      await page.waitForFunction(() => {
        const tracks = (globalThis as { camera?: MediaStreamTrack[] }).camera;
        return tracks?.every(({ readyState }) => readyState === 'ended');
      });
    });

    it('can be loaded again after the connection broke on the way', async () => {
      const { page, allow } = await open(ROUTED);
      allow(/Failed to load resource/);
      await page.route('**/pair-*.js', (route) => route.abort(), { times: 1 });
      await page.goto(app());
      await page.getByRole('button', { name: 'Retry' }).click();
      await page.getByLabel('Pairing code').waitFor();
    });

    it('counts down while the relay refuses every attempt from here', async () => {
      const { page, allow } = await open();
      allow(/WebSocket|Failed to load resource/);
      for (let attempt = 0; attempt < 10; attempt++) {
        // The browser may take either address for `localhost`.
        for (const host of ['127.0.0.1', '[::1]']) {
          const wsUrl = relay.wsUrl.replace('127.0.0.1', host);
          const { client } = await authenticate({ ...relay, wsUrl }, { pairing_code: 'WRONG1' });
          client.terminate();
        }
      }
      await page.clock.install();
      await page.goto(app());
      await page.getByLabel('Pairing code').fill('ABC123');
      await page.keyboard.press('Enter');
      await page.getByText(/Next attempt in [12]:\d\d\./).waitFor();
      expect(await page.getByRole('button', { name: 'Pair' }).count()).toBe(0);
      await expectAccessible(page);
      // A registration on the host lifts the block.
      const code = await newCode();
      await page.clock.fastForward('02:05');
      await page.getByLabel('Pairing code').fill(code);
      await page.getByRole('button', { name: 'Pair' }).click();
      await page
        .getByText(/^Connected|No answer yet/)
        .first()
        .waitFor();
    });

    it('asks over plain http once why that is in order, before the code of a link is used', async () => {
      const { page } = await open();
      await page.goto(`${app('relay.test')}#code=${await newCode()}`);
      await page.getByText('This page is not encrypted').waitFor();
      expect(page.url()).toBe(app('relay.test'));
      const go = page.getByRole('button', { name: 'Continue without encryption' });
      expect(await go.isDisabled()).toBe(true);
      await expectAccessible(page);
      await page.getByLabel('I am connected through a VPN').check();
      await go.click();
      await connected(page);
      const stored = await page.evaluate(() => JSON.parse(localStorage.getItem('svc settings') ?? '{}'));
      expect(stored).toMatchObject({
        insecure_ack_seen: true,
        insecure_reason: 'tailscale_vpn',
        all_insecure_pair_ack_seen: true,
      });
      await page.reload();
      await connected(page);
    });

    it('pairs with the secret of a link while wrong codes of others restrict typed ones (issue 23, 1.9)', async ({
      onTestFinished,
    }) => {
      const relay = await startNodeTarget(BEHIND_PROXY);
      onTestFinished(() => relay.stop());
      const app = `${relay.url.replace('127.0.0.1', 'localhost')}/app/`;
      const mint = async (): Promise<{ code: string; secret: string }> =>
        JSON.parse((await (await relay.operator('/pairing/mint', post({ host: '192.0.2.1' }))).json()).qr_payload)
          .relay;
      const [typed, linked] = [await mint(), await mint()];
      for (let index = 0; index < 61; index++) {
        await attemptFrom(relay, `2001:db8:${Math.floor(index / 9)}::1`, { pairing_code: `99${index + 1000}` });
      }
      const { page } = await open();
      await page.goto(app);
      await page.getByLabel('Pairing code').fill(typed.code);
      await page.keyboard.press('Enter');
      await page.getByText(/Others have tried many wrong codes.*Next attempt in \d+:\d\d/).waitFor();
      await page.goto(`${app}#code=${linked.code}&secret=${linked.secret}`);
      await page
        .getByText(/^Connected · \d+ ms$/)
        .first()
        .waitFor();
      expect(page.url()).not.toContain('secret');
    });

    it('leaves when the relay has revoked the session, and says so', async () => {
      const { page, allow } = await open();
      // The page may still be reading.
      allow(/status of 401/);
      await page.goto(`${app()}#code=${await newCode()}`);
      await connected(page);
      const { devices } = (await (await relay.operator('/relay/devices')).json()) as {
        devices: { token_prefix: string; connections: unknown[] }[];
      };
      const headers = { 'x-svc-operator': '1' };
      for (const { token_prefix, connections } of devices) {
        if (connections.length > 0) await relay.operator(`/sessions/${token_prefix}`, { method: 'DELETE', headers });
      }
      await page.getByText('The relay no longer knows this browser').waitFor();
      await page.getByRole('heading', { name: 'Pair this browser' }).waitFor();
    });
  },
  ARGS,
);
